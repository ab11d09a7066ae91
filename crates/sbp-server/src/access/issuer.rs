//! OAuth tokens: JSON Web Tokens that somebody else signs, and the public keys by which that is seen.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use sbp_locks::RwLock;
use sbp_messages::Token;
use serde::Deserialize;
use tokio::time::Instant;

use super::error::AccessError;
use super::key_url::{Fetched, KeyUrl};
use super::moment::Moment;
use super::principal::{Denied, Signed};
use super::watched::{Watched, read_guarded};
use crate::config::{JwtConfig, KeySource};

/// How far the clocks of whoever signs and of this server may differ.
const SLACK: Duration = Duration::from_secs(60);
/// The most keys of an issuer.
const MOST_KEYS: usize = 100;

const NO_KEY: &str = "none of its keys is an RSA, P-256, P-384 or Ed25519 key for signatures";

/// Who signs tokens that this server believes.
#[derive(Debug)]
pub(super) struct Issuer {
    config: JwtConfig,
    source: Source,
    keys: RwLock<Arc<Keys>>,
}

/// Where the keys come from.
#[derive(Debug)]
enum Source {
    File(Watched),
    Url(Arc<KeyUrl>),
}

impl Issuer {
    /// Reads the keys of a file, which has to have some. Those of an address come later: see [`Issuer::take`].
    pub(super) fn open(config: &JwtConfig) -> Result<Self, AccessError> {
        let (source, keys) = match &config.keys {
            KeySource::Url { url, ca, refresh } => {
                let url = KeyUrl::open(url, ca.clone(), *refresh)?;
                (Source::Url(Arc::new(url)), Keys(Vec::new()))
            }
            KeySource::File(path) => {
                let (file, keys) = Watched::open(path, |path| {
                    let keys = Keys::read(path, config)?;
                    if keys.0.is_empty() {
                        return Err(AccessError::BadKeys {
                            source_of_keys: path.display().to_string(),
                            reason: NO_KEY.to_owned(),
                        });
                    }
                    Ok(keys)
                })?;
                (Source::File(file), keys)
            }
        };
        Ok(Self {
            config: config.clone(),
            source,
            keys: RwLock::new(Arc::new(keys)),
        })
    }

    /// Where the keys are fetched from, if they are.
    pub(super) fn url(&self) -> Option<&Arc<KeyUrl>> {
        match &self.source {
            Source::Url(url) => Some(url),
            Source::File(_) => None,
        }
    }

    /// Whether a token looks like one that is signed: three parts with dots between them.
    pub(super) fn is_for(token: &Token) -> bool {
        token.secret().split('.').count() == 3
    }

    /// How often the keys were looked at since the start.
    pub(super) fn looks(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.looks(),
            Source::Url(url) => url.fetches(),
        }
    }

    /// Reads the keys of a file again if they have changed. `Ok(true)`: they are others now.
    pub(super) fn reload(&self) -> Result<bool, AccessError> {
        let Source::File(file) = &self.source else {
            return Ok(false);
        };
        let keys = file.again(|path| Keys::read(path, &self.config))?;
        Ok(keys.map(|keys| self.set(keys)).is_some())
    }

    /// Takes keys over that were fetched, or notes that none came. `Ok(true)`: they are others now.
    pub(super) fn take(&self, url: &KeyUrl, came: Result<String, String>) -> Result<bool, AccessError> {
        let bad = |reason: String| AccessError::BadKeys {
            source_of_keys: url.name().to_owned(),
            reason,
        };
        // What is no set of keys is as good as none.
        let read = came.and_then(|text| Keys::parse(&text, &self.config).map(|keys| (text, keys)));
        let (came, keys) = match read {
            Ok((text, keys)) => (Ok(text), Some(keys)),
            Err(why) => (Err(why), None),
        };
        let fetched = url.note(came, Instant::now());
        let changed = match (fetched, keys) {
            (Fetched::New, Some(keys)) => {
                self.set(keys);
                true
            }
            (Fetched::Stale(why), _) => {
                tracing::error!(
                    url = url.name(),
                    why,
                    "no keys came for a day: no OAuth token is believed until some do"
                );
                self.set(Keys(Vec::new()));
                true
            }
            (Fetched::Nothing(why), _) => return Err(bad(why)),
            (Fetched::New | Fetched::Same, _) => false,
        };
        url.count();
        Ok(changed)
    }

    fn set(&self, keys: Keys) {
        if keys.0.is_empty() {
            let source = match &self.config.keys {
                KeySource::File(path) => path.display().to_string(),
                KeySource::Url { url, .. } => url.clone(),
            };
            tracing::error!(source, "no OAuth token is believed: {NO_KEY}");
        }
        *self.keys.write() = Arc::new(keys);
    }

    /// Checks a token's signature, for whom it is, who issued it, and its times.
    pub(super) fn verify(&self, token: &Token, now: Moment) -> Result<Arc<Signed>, Denied> {
        let keys = Arc::clone(&self.keys.read());
        let verified = keys.verify(token.secret(), now);
        match (&verified, self.url()) {
            (Err(_), Some(url)) if keys.0.is_empty() && !url.has_come() => Err(bad(
                "this server could not fetch the keys of the issuer yet (--jwks), which its log says more about",
            )),
            (Err(denied), Some(url)) if *denied == unknown_key() => {
                url.want();
                verified
            }
            _ => verified,
        }
    }

    /// Whether the key that has signed a token is still believed.
    pub(super) fn check_key(&self, signed: &Signed) -> Result<(), Denied> {
        let is_here = self.keys.read().0.iter().any(|key| key.thumbprint == signed.key);
        if is_here { Ok(()) } else { Err(unknown_key()) }
    }
}

/// The public keys of an issuer.
#[derive(Debug)]
struct Keys(Vec<Key>);

/// One public key, with the only algorithms that it is used with. They follow from the kind of the key: a token that names
/// another one, or none, is refused before anything is computed, so that nobody signs with a public key as if it were a
/// secret.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    thumbprint: Arc<str>,
    key: DecodingKey,
    validation: Validation,
}

/// What is read of a token.
#[derive(Debug, Deserialize)]
struct Claims {
    /// One issuer. A list of them, which the comparison would take for any of its entries, is none.
    #[serde(rename = "iss")]
    _issuer: Option<String>,
    sub: String,
    /// Seconds since 1970, also parts of them.
    exp: f64,
    nbf: Option<f64>,
}

impl Keys {
    fn read(path: &Path, config: &JwtConfig) -> Result<Self, AccessError> {
        let text = read_guarded(path)?;
        Self::parse(&text, config).map_err(|reason| AccessError::BadKeys {
            source_of_keys: path.display().to_string(),
            reason,
        })
    }

    /// Reads a JSON Web Key Set. Keys that are no public keys for signatures are left out, and none may be left: whoever
    /// takes all keys away means it.
    fn parse(text: &str, config: &JwtConfig) -> Result<Self, String> {
        let set: JwkSet = serde_json::from_str(text).map_err(|error| format!("it is no JSON Web Key Set ({error})"))?;
        if set.keys.len() > MOST_KEYS {
            return Err(format!("it has more than {MOST_KEYS} keys"));
        }
        let mut keys = Vec::with_capacity(set.keys.len());
        for (place, jwk) in set.keys.iter().enumerate() {
            match Key::new(jwk, config) {
                Ok(key) => keys.push(key),
                Err(why) => tracing::warn!(key = place + 1, why, "a key for OAuth tokens is left out"),
            }
        }
        Ok(Self(keys))
    }

    fn verify(&self, token: &str, now: Moment) -> Result<Arc<Signed>, Denied> {
        let header = decode_header(token)
            .map_err(|_| bad("its first part cannot be read, or names an algorithm that no public key is for"))?;
        if header.crit.is_some() {
            return Err(bad("it asks for extensions (crit) that this server does not have"));
        }
        let (key, claims) = self.check_signature(token, &header)?;
        let expires = at(claims.exp)?;
        if expires.after(SLACK) <= now {
            return Err(Denied::SignedExpired(expires));
        }
        if let Some(begin) = claims.nbf.map(at).transpose()?
            && begin > now.after(SLACK)
        {
            return Err(Denied::SignedTooEarly(begin));
        }
        Ok(Arc::new(Signed {
            subject: claims.sub.into(),
            key: Arc::clone(&key.thumbprint),
            stated: expires,
            expires: expires.after(SLACK),
        }))
    }

    /// The key that has signed a token, and what it says. Of several keys with the name that it gives, as an issuer may have
    /// them for a while, each is tried.
    fn check_signature(&self, token: &str, header: &Header) -> Result<(&Key, Claims), Denied> {
        let mut last = None;
        for key in self.find(header)? {
            match decode::<Claims>(token, &key.key, &key.validation) {
                Ok(decoded) => return Ok((key, decoded.claims)),
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => last = Some(key.denied(error.kind())),
                Err(error) => return Err(key.denied(error.kind())),
            }
        }
        Err(last.unwrap_or_else(unknown_key))
    }

    /// The keys that may have signed a token: those that it names. For one that names none there is an answer only where one
    /// key alone can have signed it.
    fn find(&self, header: &Header) -> Result<Vec<&Key>, Denied> {
        let fits = |key: &&Key| key.validation.algorithms.contains(&header.alg);
        let Some(id) = &header.kid else {
            let keys: Vec<_> = self.0.iter().filter(fits).collect();
            return match keys.len() {
                1 => Ok(keys),
                0 => Err(other_algorithm()),
                _ => Err(bad("it does not say which key has signed it (kid)")),
            };
        };
        let named: Vec<_> = self.0.iter().filter(|key| key.id.as_ref() == Some(id)).collect();
        if named.is_empty() {
            return Err(unknown_key());
        }
        let fitting: Vec<_> = named.into_iter().filter(fits).collect();
        if fitting.is_empty() {
            return Err(other_algorithm());
        }
        Ok(fitting)
    }
}

impl Key {
    fn new(jwk: &Jwk, config: &JwtConfig) -> Result<Self, String> {
        if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return Err("it is not for signatures (use)".to_owned());
        }
        if !has_its_length(&jwk.algorithm) {
            return Err("it is too short or too long for its kind".to_owned());
        }
        let mut algorithms = algorithms_of(&jwk.algorithm).to_vec();
        if let Some(only) = jwk.common.key_algorithm {
            algorithms.retain(|algorithm| KeyAlgorithm::from(*algorithm) == only);
        }
        let Some(first) = algorithms.first() else {
            return Err("it is of no kind, or for no algorithm, that this server believes".to_owned());
        };
        let mut validation = Validation::new(*first);
        validation.algorithms = algorithms;
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.set_required_spec_claims(&["iss", "aud", "exp", "sub"]);
        // The times are compared with this server's clock, which a test can set.
        validation.validate_exp = false;
        let unusable = |error: jsonwebtoken::errors::Error| error.to_string();
        Ok(Self {
            id: jwk.common.key_id.clone(),
            thumbprint: jwk.thumbprint(ThumbprintHash::SHA256).map_err(unusable)?.into(),
            key: DecodingKey::from_jwk(jwk).map_err(unusable)?,
            validation,
        })
    }

    /// Why a token is not believed that this key should have signed. Issuer and audience are judged behind the signature.
    fn denied(&self, why: &ErrorKind) -> Denied {
        let wanted = |of: &Option<std::collections::HashSet<String>>| of.iter().flatten().cloned().collect::<String>();
        match why {
            ErrorKind::InvalidIssuer => bad(&format!(
                "somebody else has issued it: this server believes {:?} (iss)",
                wanted(&self.validation.iss)
            )),
            ErrorKind::InvalidAudience => bad(&format!(
                "it is not for this server, which is {:?} (aud)",
                wanted(&self.validation.aud)
            )),
            ErrorKind::MissingRequiredClaim(claim) => bad(&format!("it lacks {claim}")),
            ErrorKind::Json(_) | ErrorKind::InvalidClaimFormat(_) => {
                bad("what it says of its issuer, its subject or its times (iss, sub, exp, nbf) cannot be read")
            }
            _ => bad("its signature is wrong"),
        }
    }
}

/// The algorithms that a kind of key is for. A symmetric key is for none: whoever can check with it can sign with it.
fn algorithms_of(key: &AlgorithmParameters) -> &'static [Algorithm] {
    match key {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => &[Algorithm::ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => &[Algorithm::ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
        _ => &[],
    }
}

/// Whether the numbers of a key are as long as those of its kind, in characters of base64url: one that is not checks no
/// signature.
fn has_its_length(key: &AlgorithmParameters) -> bool {
    // 2,048 to 8,192 bits, 32 bytes and 48 bytes.
    match key {
        AlgorithmParameters::RSA(key) => (342..=1_368).contains(&key.n.len()),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (key.x.len(), key.y.len()) == (43, 43)
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
            (key.x.len(), key.y.len()) == (64, 64)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => key.x.len() == 43,
        _ => true,
    }
}

fn at(seconds: f64) -> Result<Moment, Denied> {
    let since = Duration::try_from_secs_f64(seconds);
    let since = since.map_err(|_| bad("one of its times (exp, nbf) is none"))?;
    Ok(Moment::from_secs(0).after(since))
}

fn bad(why: &str) -> Denied {
    Denied::BadSigned(why.to_owned())
}

fn unknown_key() -> Denied {
    bad("this server does not know the key that has signed it (kid), or does not believe it any more")
}

fn other_algorithm() -> Denied {
    bad("its algorithm (alg) is not that of the key")
}

/// Whom a server would take the owner of an OAuth token for: its `sub`, with keys from this text.
///
/// # Errors
///
/// What is said to a peer that shows it, or what is wrong with the keys.
#[cfg(feature = "testing")]
pub fn judge_signed(keys: &str, issuer: &str, audience: &str, token: &Token, now: Moment) -> Result<String, String> {
    let config = JwtConfig {
        keys: KeySource::File(std::path::PathBuf::new()),
        issuer: issuer.to_owned(),
        audience: audience.to_owned(),
    };
    let keys = Keys::parse(keys, &config)?;
    let verified = keys.verify(token.secret(), now);
    verified
        .map(|signed| signed.subject.to_string())
        .map_err(|denied| denied.to_string())
}
