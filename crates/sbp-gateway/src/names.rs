//! Which stream stands for which partition of a topic.

/// The longest name of a topic.
const LONGEST: usize = 64;

/// The name of the stream that stands for a partition: `topic/partition`.
///
/// Names of streams begin with a letter or `_`. So `_` stands before a topic that begins with a digit or `-`, and before one
/// that begins with `_` and would be read as such: no two topics have one stream.
#[must_use]
pub(crate) fn stream_of(topic: &str, partition: u16) -> String {
    let escape = if needs_escape(topic) { "_" } else { "" };
    format!("{escape}{topic}/{partition}")
}

/// The topic and partition that a stream stands for. A stream without a partition in its name is its topic's first one, where
/// no other is: `None`.
pub(crate) fn topic_of(stream: &str) -> Option<(&str, Option<u16>)> {
    let (escaped, partition) = match stream.split_once('/') {
        Some((escaped, digits)) => (escaped, Some(partition(digits)?)),
        None => (stream, None),
    };
    let topic = match escaped.strip_prefix('_') {
        Some(topic) if needs_escape(topic) => topic,
        _ => escaped,
    };
    is_topic(topic).then_some((topic, partition))
}

/// Whether a topic can have this name.
pub(crate) fn is_topic(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let ends_well = name.bytes().last().is_some_and(|last| last.is_ascii_alphanumeric());
    name.len() <= LONGEST && ends_well && name.bytes().all(is_allowed)
}

fn needs_escape(topic: &str) -> bool {
    let first = topic.trim_start_matches('_').bytes().next();
    first.is_some_and(|first| first.is_ascii_digit() || first == b'-')
}

/// A partition as its number is written. The largest number stands for "no topic" in answers.
fn partition(digits: &str) -> Option<u16> {
    let number: u16 = digits.parse().ok().filter(|number| *number < u16::MAX)?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{is_topic, stream_of, topic_of};

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
            assert_eq!(topic_of(stream), Some((topic, Some(3))));
        }
        assert_eq!(topic_of("orders"), Some(("orders", None)));
        assert_eq!(topic_of("_2026"), Some(("2026", None)));
    }

    #[test]
    fn other_streams_are_no_topics() {
        for stream in [
            "orders/",
            "orders/03",
            "orders/+3",
            "orders/65535",
            "orders/3/4",
            "a.b/0",
            "orders-/0",
            "_sbp/cursors/job",
            "",
        ] {
            assert_eq!(topic_of(stream), None, "{stream:?}");
        }
        assert!(is_topic(&"a".repeat(64)) && !is_topic(&"a".repeat(65)) && !is_topic(""));
    }
}
