//! Where a client's token comes from.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use sbp_messages::Token;

/// A token that is being got; the error says why there is none, and must not repeat one.
pub type TokenFuture = Pin<Box<dyn Future<Output = Result<Token, String>> + Send>>;

/// The most bytes of a token. A server reads no longer HEARTBEAT of somebody whom it does not know.
const LONGEST: usize = 4_096;

/// Where a client gets the token that says who it is. It is sent in the first HEARTBEAT of each connection, and again when
/// the server asks because it is about to expire.
#[derive(Clone)]
pub enum TokenSource {
    /// Always this one.
    Fixed(Token),
    /// Asked for each connection, on the runtime of the client; must not block.
    Fresh(Arc<dyn Fn() -> TokenFuture + Send + Sync>),
}

impl TokenSource {
    /// The content of a file without the white space around it, read for each connection: a token that is replaced there is
    /// used from the next connection on.
    #[must_use]
    pub fn file(path: PathBuf) -> Self {
        Self::Fresh(Arc::new(move || {
            let path = path.clone();
            Box::pin(async move {
                let read = {
                    let path = path.clone();
                    tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await
                };
                let told =
                    |error: &dyn fmt::Display| format!("the token in {} cannot be read: {error}", path.display());
                let text = read.map_err(|error| told(&error))?.map_err(|error| told(&error))?;
                Ok(Token::new(text.trim()))
            })
        }))
    }

    /// Gets a token that can be sent.
    pub(crate) async fn get(&self) -> Result<Token, String> {
        let token = match self {
            Self::Fixed(token) => token.clone(),
            Self::Fresh(ask) => ask().await?,
        };
        Self::check(token)
    }

    /// Whether a token can be sent.
    pub(crate) fn check(token: Token) -> Result<Token, String> {
        match fault(&token) {
            None => Ok(token),
            Some(fault) => Err(fault),
        }
    }
}

/// Why a text cannot be a token.
fn fault(token: &Token) -> Option<String> {
    let text = token.secret();
    if text.is_empty() {
        Some("the token is empty".to_owned())
    } else if text.len() > LONGEST {
        Some(format!("the token has {} bytes, more than {LONGEST}", text.len()))
    } else if text.chars().any(|one| one.is_control() || one.is_whitespace()) {
        Some("the token has white space or control characters in it".to_owned())
    } else {
        None
    }
}

/// Never shows a token.
impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed(_) => "a token",
            Self::Fresh(_) => "a source of tokens",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_each_time_and_nothing_shows_a_token() {
        let file = std::env::temp_dir().join(format!("sbp-token-{}", std::process::id()));
        let source = TokenSource::file(file.clone());
        assert!(source.get().await.expect_err("not there").contains("cannot be read"));
        for token in ["first", "second"] {
            std::fs::write(&file, format!("  {token}\n")).expect("written");
            assert_eq!(source.get().await, Ok(Token::new(token)));
        }
        std::fs::remove_file(&file).expect("there");
        let fixed = TokenSource::Fixed(Token::new("open-sesame"));
        assert!(!format!("{source:?} {fixed:?}").contains("sesame"));
    }

    #[tokio::test]
    async fn what_cannot_be_a_token_is_told_without_it() {
        for text in ["", "open\u{7}sesame", "open sesame", &"sesame".repeat(1_000)] {
            let fault = TokenSource::Fixed(Token::new(text)).get().await.expect_err(text);
            assert!(!fault.contains("sesame"), "{fault}");
        }
    }
}
