//! Which stream stands for which segment, and for which scope.

use sbp_messages::is_valid_stream_name;
use sbp_pravega::{Segment, SegmentId};
use sbp_types::StreamId;

/// What the names of streams that stand for scopes begin with.
const SCOPES: &str = "_sbp/pravega/";
/// No scope: streams whose names begin so are the product's own.
const RESERVED: &str = "_sbp";

/// The name of the stream that stands for a segment: `scope/stream/number`. `None`: none can, because a stream may not have
/// that name, or because the segment was made by a change of a stream's segments, which is not served.
pub(crate) fn stream_of(segment: &Segment) -> Option<String> {
    let Segment { scope, stream, id } = segment;
    let name = format!("{scope}/{stream}/{}", id.number());
    let is_one = id.epoch() == 0 && is_scope(scope) && is_stream(scope, stream);
    (is_one && is_valid_stream_name(&name)).then_some(name)
}

/// The segment that a stream of this name can stand for.
pub(crate) fn segment_of(stream: &str) -> Option<Segment> {
    let mut parts = stream.split('/');
    let (scope, name, digits) = (parts.next()?, parts.next()?, parts.next()?);
    let number: i32 = digits.parse().ok().filter(|number| *number >= 0)?;
    if parts.next().is_some() || number.to_string() != digits || !is_scope(scope) || !is_stream(scope, name) {
        return None;
    }
    Some(Segment {
        scope: scope.to_owned(),
        stream: name.to_owned(),
        id: SegmentId::new(0, number),
    })
}

/// The name of the stream that stands for a scope, if there can be such a scope.
pub(crate) fn scope_stream(scope: &str) -> Option<String> {
    is_scope(scope).then(|| format!("{SCOPES}{scope}"))
}

/// The scope that a stream of this name can stand for.
pub(crate) fn scope_of(stream: &str) -> Option<&str> {
    stream.strip_prefix(SCOPES).filter(|scope| is_scope(scope))
}

/// The name of the stream that holds the attributes of a segment: that of no scope. No other segment's stream ever has the number.
pub(crate) fn attributes_stream(segment: StreamId) -> String {
    format!("{SCOPES}attributes/{segment}")
}

/// Whether a scope can have this name.
pub(crate) fn is_scope(scope: &str) -> bool {
    // As long as its shortest segment leaves room.
    scope != RESERVED && is_part(scope) && is_valid_stream_name(&format!("{SCOPES}{scope}")) && is_stream(scope, "s")
}

/// Whether a stream in this scope can have this name: its segment with the longest number needs a stream too.
pub(crate) fn is_stream(scope: &str, stream: &str) -> bool {
    is_part(stream) && is_valid_stream_name(&format!("{scope}/{stream}/{}", i32::MAX))
}

/// One part of a name. Pravega allows letters, digits, `.` and `-`; names that begin with `_` are those that its clients give to
/// streams of their own.
fn is_part(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(scope: &str, stream: &str, id: SegmentId) -> Segment {
        Segment {
            scope: scope.to_owned(),
            stream: stream.to_owned(),
            id,
        }
    }

    #[test]
    fn every_segment_has_a_stream_of_its_own() {
        for (scope, stream, number, name) in [
            ("sc", "st", 0, "sc/st/0"),
            ("sc", "_RGgroup", 12, "sc/_RGgroup/12"),
            ("sc", "2026-01", i32::MAX, "sc/2026-01/2147483647"),
            ("sc.x", "map_kvtable", 0, "sc.x/map_kvtable/0"),
        ] {
            let segment = segment(scope, stream, SegmentId::new(0, number));
            assert_eq!(stream_of(&segment).as_deref(), Some(name));
            assert_eq!(segment_of(name), Some(segment));
        }
    }

    #[test]
    fn names_that_streams_cannot_have_are_none() {
        for (scope, stream) in [
            ("2026", "st"),
            ("", "st"),
            ("sc", ""),
            ("sc", "a/b"),
            ("sc", "größe"),
            ("_sbp", "pravega"),
            ("sc", "st#transaction.0"),
        ] {
            assert_eq!(
                stream_of(&segment(scope, stream, SegmentId::new(0, 0))),
                None,
                "{scope:?} {stream:?}"
            );
        }
        assert_eq!(
            stream_of(&segment("sc", "st", SegmentId::new(1, 0))),
            None,
            "of a later epoch"
        );
        let long = "a".repeat(239);
        assert!(is_stream("scope", &long[..238]) && !is_stream("scope", &long));
        for name in [
            "sc/st",
            "sc/st/",
            "sc/st/00",
            "sc/st/+1",
            "sc/st/-1",
            "sc/st/0/1",
            "sc/st/2147483648",
            "_sbp/cursors/0",
        ] {
            assert_eq!(segment_of(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_scope_has_a_stream_that_stands_for_no_segment() {
        assert_eq!(scope_stream("sc").as_deref(), Some("_sbp/pravega/sc"));
        assert_eq!(scope_of("_sbp/pravega/sc"), Some("sc"));
        assert_eq!(segment_of("_sbp/pravega/sc"), None);
        for scope in ["", "_sbp", "2026", "a/b", "ß", &"a".repeat(250)] {
            assert_eq!(scope_stream(scope), None, "{scope:?}");
        }
        let attributes = attributes_stream(StreamId(7));
        assert_eq!(
            (attributes.as_str(), scope_of(&attributes)),
            ("_sbp/pravega/attributes/7", None)
        );
        assert_eq!(scope_of("_sbp/pravega/"), None);
        assert_eq!(scope_of("sc/pravega/sc"), None);
    }
}
