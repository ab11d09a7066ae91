//! Who a peer is, and how that is known.

use std::collections::HashMap;
use std::sync::Arc;

use super::entry::Entry;
use super::grant::{Grants, Right, Rights};
use super::moment::Moment;
use super::quota::Quota;
use super::secret::TokenDigest;
use sbp_messages::Token;

/// A name with what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) name: Arc<str>,
    pub(crate) grants: Grants,
    pub(crate) quota: Quota,
    pub(crate) expires: Option<Moment>,
    /// By what it is known.
    pub(crate) known_by: KnownBy,
}

/// What shows that a peer has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownBy {
    Token(TokenDigest),
    Certificate(Arc<str>),
    /// A token that somebody else has signed, for this subject.
    Subject(Arc<str>),
}

impl Principal {
    /// Whether it may see the figures of the server, which name all streams: who reads or administers all of them does
    /// so anyhow.
    pub(crate) fn may_watch(&self) -> bool {
        self.has_everywhere(Rights::of(&[Right::Read, Right::Admin]))
    }

    /// Whether one of `rights` is held on everything.
    pub(crate) fn has_everywhere(&self, rights: Rights) -> bool {
        self.grants.everywhere().has_any(rights)
    }

    /// Whether one of `rights` is held on the stream of this name; the empty name is that of none.
    pub(crate) fn has(&self, rights: Rights, stream: &str) -> bool {
        self.grants.on(stream).has_any(rights)
    }
}

/// Why a peer is not believed. The text says what to do, and never repeats what the peer sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error(
        "this server wants to know who asks, and the client sent no token: give it one (token=, --token-file or \
         SBP_TOKEN); the server's operator makes it with `sbp token create`"
    )]
    NoToken,
    #[error(
        "this server wants to know who asks, and does not know {0:?}, the first name in the client's certificate: the \
         server's operator adds it with `sbp token create --certificate`, or the client gives a token"
    )]
    UnknownCertificate(Arc<str>),
    #[error(
        "this server does not know the token: it was revoked, belongs to another server, or is not complete; the server's \
         operator makes another with `sbp token create`"
    )]
    UnknownToken,
    #[error("the token expired at {0}: get another; the server's operator makes one with `sbp token create`")]
    Expired(Moment),
    #[error(
        "the token is valid, but its subject may do nothing here: the server's operator adds a line for it to the file of names"
    )]
    UnknownSubject,
}

/// All who are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    tokens: Vec<(TokenDigest, Arc<Principal>)>,
    certificates: HashMap<Arc<str>, Arc<Principal>>,
    subjects: HashMap<Arc<str>, Arc<Principal>>,
}

impl Known {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let mut known = Self::default();
        for entry in entries {
            let principal = |known_by| {
                Arc::new(Principal {
                    name: entry.name.as_str().into(),
                    grants: Grants::new(entry.allow.iter().cloned()),
                    quota: entry.quota,
                    expires: entry.expires,
                    known_by,
                })
            };
            if let Some(digest) = entry.sha256 {
                known.tokens.push((digest, principal(KnownBy::Token(digest))));
            }
            if let Some(name) = entry.certificate.as_deref().map(Arc::<str>::from) {
                known
                    .certificates
                    .insert(Arc::clone(&name), principal(KnownBy::Certificate(name)));
            }
            if let Some(name) = entry.subject.as_deref().map(Arc::<str>::from) {
                known
                    .subjects
                    .insert(Arc::clone(&name), principal(KnownBy::Subject(name)));
            }
        }
        known
    }

    /// Who has this token. All tokens are compared, so that the time does not tell which one is like it.
    pub(crate) fn by_token(&self, token: &Token, now: Moment) -> Result<Arc<Principal>, Denied> {
        if token.is_empty() {
            return Err(Denied::NoToken);
        }
        self.by_digest(TokenDigest::of(token), now)
    }

    fn by_digest(&self, digest: TokenDigest, now: Moment) -> Result<Arc<Principal>, Denied> {
        let mut found = None;
        for (known, principal) in &self.tokens {
            if *known == digest {
                found = Some(principal);
            }
        }
        in_time(found.ok_or(Denied::UnknownToken)?, now)
    }

    /// Who has a certificate with this first name.
    pub(crate) fn by_certificate(&self, name: &str, now: Moment) -> Result<Arc<Principal>, Denied> {
        let unknown = || Denied::UnknownCertificate(name.into());
        in_time(self.certificates.get(name).ok_or_else(unknown)?, now)
    }

    /// Who is the subject of a signed token.
    pub(crate) fn by_subject(&self, subject: &str, now: Moment) -> Result<Arc<Principal>, Denied> {
        in_time(self.subjects.get(subject).ok_or(Denied::UnknownSubject)?, now)
    }

    /// What is known now of somebody who was known before.
    pub(crate) fn again(&self, before: &Principal, now: Moment) -> Result<Arc<Principal>, Denied> {
        match &before.known_by {
            KnownBy::Token(digest) => self.by_digest(*digest, now),
            KnownBy::Certificate(name) => self.by_certificate(name, now),
            KnownBy::Subject(subject) => self.by_subject(subject, now),
        }
    }
}

fn in_time(principal: &Arc<Principal>, now: Moment) -> Result<Arc<Principal>, Denied> {
    match principal.expires {
        Some(end) if end <= now => Err(Denied::Expired(end)),
        _ => Ok(Arc::clone(principal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::entry::read_entries;
    use crate::access::grant::Right;
    use crate::access::secret::new_token;

    const SERVER: Rights = Rights::of(&[Right::Server]);

    #[test]
    fn who_is_known_is_found_until_the_line_is_gone_or_its_time_is_up() {
        let token = new_token().expect("random");
        let digest = String::from(TokenDigest::of(&token));
        let text = format!(
            "{{\"name\":\"billing\",\"allow\":[\"read:orders\"],\"sha256\":\"{digest}\",\"expires\":\"1970-01-01T00:01:40Z\"}}\n\
             {{\"name\":\"spark\",\"allow\":[\"server\"],\"certificate\":\"spark.example\"}}"
        );
        let known = Known::new(read_entries(text.as_bytes()).expect("valid"));
        let (now, later) = (Moment::from_secs(99), Moment::from_secs(100));
        let billing = known.by_token(&token, now).expect("known");
        assert_eq!(&*billing.name, "billing");
        assert!(billing.has(Rights::of(&[Right::Read]), "orders") && !billing.has_everywhere(SERVER));
        assert_eq!(known.by_token(&token, later), Err(Denied::Expired(later)));
        assert_eq!(known.by_token(&Token::default(), now), Err(Denied::NoToken));
        assert_eq!(
            known.by_token(&new_token().expect("random"), now),
            Err(Denied::UnknownToken)
        );
        assert_eq!(known.again(&billing, now), Ok(Arc::clone(&billing)));
        assert_eq!(known.again(&billing, later), Err(Denied::Expired(later)));
        assert_eq!(
            Known::default().again(&billing, now),
            Err(Denied::UnknownToken),
            "revoked"
        );
        assert!(
            known
                .by_certificate("spark.example", later)
                .expect("known")
                .has_everywhere(SERVER)
        );
        let other = Denied::UnknownCertificate("other.example".into());
        assert_eq!(known.by_certificate("other.example", now), Err(other.clone()));
        for denied in [other, Denied::NoToken, Denied::UnknownToken, Denied::Expired(later)] {
            assert!(denied.to_string().contains("sbp token create"), "{denied}");
        }
    }
}
