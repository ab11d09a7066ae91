//! What is told to whoever asks for settings that are allowed and probably not meant.

use sbp_messages::Stream;

/// What a stream with several copies of which one acknowledges does not give. An append is then acknowledged when it is on
/// one disk, which may be any one of them, so that nobody can take over while one server is away.
#[must_use]
pub fn caution_about_copies(stream: &Stream) -> Option<String> {
    let Stream {
        replica_nums,
        ack_count,
        ..
    } = *stream;
    (replica_nums > 1 && ack_count == 1).then(|| {
        format!(
            "stream {:?} ({}) is to have {replica_nums} copies, and one server alone acknowledges an append: when any of \
             the {replica_nums} is lost, nobody else knows what it has acknowledged, so appends wait until it is back, \
             and what it alone had is lost with its disk; ask for a majority, which is the default ({})",
            stream.name,
            stream.stream_id,
            replica_nums / 2 + 1
        )
    })
}

/// Logs it.
pub(super) fn caution(stream: &Stream) {
    if let Some(caution) = caution_about_copies(stream) {
        tracing::warn!("{caution}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(replica_nums: i8, ack_count: i8) -> Stream {
        Stream {
            name: "orders".to_owned(),
            replica_nums,
            ack_count,
            ..Stream::default()
        }
    }

    #[test]
    fn only_copies_that_one_server_acknowledges_are_cautioned_against() {
        for (replicas, acks) in [(1, 1), (3, 2), (3, 3), (2, 2), (5, 2)] {
            assert_eq!(caution_about_copies(&stream(replicas, acks)), None, "{replicas} {acks}");
        }
        for replicas in [2, 3, 5] {
            let said = caution_about_copies(&stream(replicas, 1)).unwrap();
            assert!(said.contains(&format!("{replicas} copies")), "{said}");
        }
        let said = caution_about_copies(&stream(3, 1)).unwrap();
        assert!(
            said.contains("\"orders\"") && said.ends_with("the default (2)"),
            "{said}"
        );
    }
}
