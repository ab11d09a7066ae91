//! Who a peer is, and how that is known.

use std::collections::HashMap;
use std::sync::Arc;

use super::entry::Entry;
use super::grant::{Grants, Right, Rights};
use super::moment::Moment;
use super::quota::Quota;
use super::secret::TokenDigest;
use super::usage::Usage;
use sbp_messages::Token;

/// A name with what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    pub(crate) name: Arc<str>,
    pub(crate) grants: Grants,
    /// What the name uses of its quota; `None`: it has none.
    pub(crate) usage: Option<Arc<Usage>>,
    /// The most streams that the name may have made that exist.
    pub(crate) streams: Option<u32>,
    pub(crate) expires: Option<Moment>,
    /// By what it is known.
    pub(crate) known_by: KnownBy,
}

/// What shows that a peer has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownBy {
    Token(TokenDigest),
    Certificate(Arc<str>),
    /// Only by tokens that somebody else signs for this subject: nobody has shown one.
    Subject(Arc<str>),
    /// A token that somebody else has signed.
    Signed(Arc<Signed>),
}

/// What a token says that somebody else has signed, and whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    /// For whom it was made.
    pub(crate) subject: Arc<str>,
    /// The SHA-256 of the key.
    pub(crate) key: Arc<str>,
    /// When it expires, as it says.
    pub(crate) stated: Moment,
    /// Until when it is believed, by the slack for clocks.
    pub(crate) expires: Moment,
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        let facts = |of: &Self| {
            (
                Arc::clone(&of.name),
                of.streams,
                of.expires,
                of.usage.as_ref().map(Arc::as_ptr),
            )
        };
        facts(self) == facts(other) && self.grants == other.grants && self.known_by == other.known_by
    }
}

impl Eq for Principal {}

impl Principal {
    /// By when the peer should show another token; `None`: never.
    pub(crate) fn renew_by(&self) -> Option<Moment> {
        match (&self.known_by, self.expires) {
            (KnownBy::Signed(signed), Some(end)) => Some(end.min(signed.stated)),
            (_, end) => end,
        }
    }

    /// What is said to a peer whose time is up.
    pub(crate) fn expired(&self) -> Denied {
        match (&self.known_by, self.expires) {
            (KnownBy::Signed(signed), Some(end)) if end == signed.expires => Denied::SignedExpired(end),
            (_, Some(end)) => Denied::Expired(end),
            (_, None) => Denied::UnknownToken,
        }
    }

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
        "the token is valid, but its subject may do nothing here: the server's operator adds a line for it to the file of \
         names, with `sbp token create --subject`"
    )]
    UnknownSubject,
    #[error("this server does not believe the OAuth token, because {0}: get another from whoever issued it")]
    BadSigned(String),
    #[error("the OAuth token expired at {0}: get another from whoever issued it")]
    SignedExpired(Moment),
    #[error(
        "the OAuth token does not count before {0}, which has not come on this server's clock: wait, or compare the clocks"
    )]
    SignedTooEarly(Moment),
}

/// All who are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    tokens: Vec<(TokenDigest, Arc<Principal>)>,
    certificates: HashMap<Arc<str>, Arc<Principal>>,
    subjects: HashMap<Arc<str>, Arc<Principal>>,
    /// What the names use that have a quota.
    usages: HashMap<Arc<str>, Arc<Usage>>,
}

impl Known {
    /// Those of a file. What names have used, who were known `before`, they have used still.
    pub(crate) fn new(entries: Vec<Entry>, before: &Self) -> Self {
        let quotas = quotas(&entries);
        let mut known = Self {
            usages: usages(&quotas, before),
            ..Self::default()
        };
        for entry in entries {
            let (name, quota) = quotas.get_key_value(entry.name.as_str()).map_or_else(
                || (entry.name.as_str().into(), entry.quota),
                |(name, quota)| (Arc::clone(name), *quota),
            );
            let usage = known.usages.get(&name).cloned();
            let principal = |known_by| {
                Arc::new(Principal {
                    name: Arc::clone(&name),
                    grants: Grants::new(entry.allow.iter().cloned()),
                    usage: usage.clone(),
                    streams: quota.streams,
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

    /// Who is the subject of a signed token, until it expires.
    pub(crate) fn by_signed(&self, signed: &Arc<Signed>, now: Moment) -> Result<Arc<Principal>, Denied> {
        if signed.expires <= now {
            return Err(Denied::SignedExpired(signed.expires));
        }
        let line = in_time(self.subjects.get(&signed.subject).ok_or(Denied::UnknownSubject)?, now)?;
        Ok(Arc::new(Principal {
            expires: Some(line.expires.map_or(signed.expires, |end| end.min(signed.expires))),
            known_by: KnownBy::Signed(Arc::clone(signed)),
            ..Principal::clone(&line)
        }))
    }

    /// What is known now of somebody who was known before.
    pub(crate) fn again(&self, before: &Principal, now: Moment) -> Result<Arc<Principal>, Denied> {
        match &before.known_by {
            KnownBy::Token(digest) => self.by_digest(*digest, now),
            KnownBy::Certificate(name) => self.by_certificate(name, now),
            KnownBy::Signed(signed) => self.by_signed(signed, now),
            KnownBy::Subject(_) => Err(Denied::UnknownSubject),
        }
    }
}

/// The quota of each name: of several lines with it, the lowest limits.
fn quotas(entries: &[Entry]) -> HashMap<Arc<str>, Quota> {
    let mut quotas: HashMap<Arc<str>, Quota> = HashMap::new();
    for entry in entries {
        let quota = quotas.entry(entry.name.as_str().into()).or_default();
        *quota = quota.and(entry.quota);
    }
    quotas
}

/// What the names use that have a quota, with what they have used before.
fn usages(quotas: &HashMap<Arc<str>, Quota>, before: &Known) -> HashMap<Arc<str>, Arc<Usage>> {
    let limited = quotas.iter().filter(|(_, quota)| !quota.is_unlimited());
    let usage = |(name, quota): (&Arc<str>, &Quota)| {
        let usage = match before.usages.get(name) {
            Some(usage) => {
                usage.set_quota(*quota);
                Arc::clone(usage)
            }
            None => Arc::new(Usage::new(Arc::clone(name), *quota)),
        };
        (Arc::clone(name), usage)
    };
    limited.map(usage).collect()
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
        let known = Known::new(read_entries(text.as_bytes()).expect("valid"), &Known::default());
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
