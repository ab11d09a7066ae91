//! Which names streams may have.

use sbp_messages::is_valid_stream_name;

use crate::refusal::Refusal;

/// Checks a stream's name. The refusal says which names are allowed.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    if is_valid_stream_name(name) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "{} cannot name a stream: a name begins with a letter or _ and goes on with letters, digits, . _ / or -, at \
         most 255 in all",
        quoted(name)
    )))
}

/// A name that a peer sent, for use in a message: escaped, because messages are shown in terminals, and cut to 80
/// characters.
pub(crate) fn quoted(name: &str) -> String {
    let shown: String = name.escape_debug().take(80).collect();
    format!("\"{shown}\"")
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn a_refused_name_is_shown_without_control_characters_and_cut() {
        for name in ["a\u{1b}[2J\n", "\0", &"9".repeat(100_000)] {
            let message = check_name(name).unwrap_err().message;
            assert!(
                message.len() < 400 && message.chars().all(|c| !c.is_control()),
                "{message:?}"
            );
        }
        assert!(check_name("flights/UA").is_ok());
    }
}
