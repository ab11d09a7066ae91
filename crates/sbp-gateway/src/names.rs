//! Which stream stands for which partition of a topic.

/// The name of the stream that stands for a partition: `topic/partition`.
///
/// Names of streams begin with a letter or `_`. So `_` stands before a topic that begins with a digit or `-`, and before one
/// that begins with `_` and would be read as such: no two topics have one stream.
#[must_use]
pub(crate) fn stream_of(topic: &str, partition: u16) -> String {
    let escape = if needs_escape(topic) { "_" } else { "" };
    format!("{escape}{topic}/{partition}")
}

fn needs_escape(topic: &str) -> bool {
    let first = topic.trim_start_matches('_').bytes().next();
    first.is_some_and(|first| first.is_ascii_digit() || first == b'-')
}

#[cfg(test)]
mod tests {
    use super::stream_of;

    #[test]
    fn every_topic_has_a_stream_of_its_own() {
        for (topic, stream) in [
            ("orders", "orders/3"),
            ("2026", "_2026/3"),
            ("_2026", "__2026/3"),
            ("-a", "_-a/3"),
            ("_a", "_a/3"),
            ("__a", "__a/3"),
        ] {
            assert_eq!(stream_of(topic, 3), stream);
        }
    }
}
