//! Tokens that the server makes: their text, and what it keeps of them.

use std::fmt;

use sbp_messages::Token;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// What a token begins with, so that programs that look for secrets in the wrong places find it.
const PREFIX: &str = "sbp_";

/// Makes a token of 256 random bits.
///
/// # Errors
///
/// When the system has no random bytes.
pub fn new_token() -> std::io::Result<Token> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).map_err(std::io::Error::other)?;
    Ok(Token::new(format!("{PREFIX}{}", hex::encode(bits))))
}

/// The SHA-256 of a token. The token cannot be found from it, because it is random.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenDigest([u8; 32]);

/// Why a text is no digest. It does not repeat the text, which may be a token in the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sha256 is not 64 hexadecimal digits")]
pub struct BadDigest;

impl TokenDigest {
    /// What is kept of a token.
    #[must_use]
    pub fn of(token: &Token) -> Self {
        Self(Sha256::digest(token.secret().as_bytes()).into())
    }
}

/// In a time that does not depend on where they differ.
impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenDigest {}

/// The first digits, to tell tokens of one name apart.
impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex::encode(self.0).get(..8).unwrap_or_default())
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenDigest({self})")
    }
}

impl TryFrom<String> for TokenDigest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).map_err(|_| BadDigest)?;
        Ok(Self(digest))
    }
}

impl From<TokenDigest> for String {
    fn from(digest: TokenDigest) -> Self {
        hex::encode(digest.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_random_and_known_by_their_digest() {
        let (one, other) = (new_token().expect("random"), new_token().expect("random"));
        assert_eq!(one.secret().len(), PREFIX.len() + 64);
        assert!(one.secret().starts_with(PREFIX));
        assert_ne!(TokenDigest::of(&one), TokenDigest::of(&other));
        let kept = String::from(TokenDigest::of(&one));
        assert_eq!(TokenDigest::try_from(kept.clone()), Ok(TokenDigest::of(&one)));
        assert!(!kept.contains(&one.secret()[PREFIX.len()..]));
        let misplaced = TokenDigest::try_from(one.secret().to_owned()).expect_err("a token is no digest");
        assert!(!misplaced.to_string().contains(one.secret()));
    }

    #[test]
    fn the_digest_is_the_known_one() {
        let digest = TokenDigest::of(&Token::new("abc"));
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(String::from(digest), known);
    }
}
