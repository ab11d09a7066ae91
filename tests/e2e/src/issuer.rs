//! An issuer of OAuth tokens: keys that a test makes for itself, the file with their public halves, and tokens.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256};
use sbp_messages::Token;
use sbp_server::{JwtConfig, KeySource};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Who issues the tokens.
pub const ISSUER: &str = "https://login.example/";
/// For whom.
pub const AUDIENCE: &str = "sbp.example";

/// A key that signs tokens.
#[derive(Clone, Debug)]
pub struct SigningKey {
    id: String,
    algorithm: Algorithm,
    key: EncodingKey,
    /// Its public half.
    pub public: Value,
}

impl SigningKey {
    /// A new key with this id; of the elliptic curves, those of NIST.
    pub fn new(id: &str, algorithm: Algorithm) -> Self {
        let pair = |kind| KeyPair::generate_for(kind).unwrap().serialize_der();
        let key = match algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_der(&pair(&PKCS_ECDSA_P256_SHA256)),
            Algorithm::ES384 => EncodingKey::from_ec_der(&pair(&PKCS_ECDSA_P384_SHA384)),
            // PKCS #8 is 26 bytes around what PKCS #1 has.
            _ => EncodingKey::from_rsa_der(&pair(&PKCS_RSA_SHA256)[26..]),
        };
        let mut public = serde_json::to_value(Jwk::from_encoding_key(&key, algorithm).unwrap()).unwrap();
        public["kid"] = json!(id);
        Self {
            id: id.to_owned(),
            algorithm,
            key,
            public,
        }
    }

    /// A token that says this.
    pub fn sign(&self, claims: &Value) -> Token {
        self.sign_under(&self.header(), claims)
    }

    /// What stands in front of its tokens.
    pub fn header(&self) -> Header {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.clone());
        header
    }

    /// A token with another beginning.
    pub fn sign_under(&self, header: &Header, claims: &Value) -> Token {
        Token::new(encode(header, claims, &self.key).unwrap())
    }
}

/// What a token for `subject` says that expires in so many seconds.
pub fn claims(subject: &str, expires_in: i64) -> Value {
    json!({"iss": ISSUER, "aud": ["other.example", AUDIENCE], "sub": subject, "exp": now() + expires_in})
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// The file of public keys.
#[derive(Debug)]
pub struct KeyFile(TempDir);

impl KeyFile {
    /// A file with the public halves of these keys.
    pub fn new(keys: &[&SigningKey]) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        file.publish(keys);
        file
    }

    /// Puts other keys into the file.
    pub fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<_> = keys.iter().map(|key| &key.public).collect();
        self.write(&json!({ "keys": keys }).to_string());
    }

    /// Puts any text there, in one step.
    pub fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("jwks.json")
    }

    /// What a server is told of it.
    pub fn config(&self) -> JwtConfig {
        JwtConfig {
            keys: KeySource::File(self.path()),
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
        }
    }
}
