//! A bearer token.

use std::fmt;

/// A bearer token, as a client sends it in HEARTBEAT.
///
/// Whoever has it is who it says. So `Debug` shows only that there is one, and there is no `Display`:
/// [`Token::secret`] is the only way to its text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token with this text; empty: no token.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, for the wire and for comparing. It must not get into a log, an error or a file.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "no token" } else { "a token" })
    }
}
