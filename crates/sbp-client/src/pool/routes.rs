//! Where streams are, as far as is known: pure, a table of what a placement driver said.

use std::collections::HashMap;

use sbp_messages::Range;
use sbp_types::{Offset, ServerId, StreamId};
use smallvec::SmallVec;

/// A server that holds ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerLocation {
    /// The server's number, by which one is known that is connected already.
    pub(crate) server: ServerId,
    /// Where to dial it otherwise. Text of a peer.
    pub(crate) address: String,
}

/// One range and who takes its appends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    start: Offset,
    /// `None` while it is open.
    end: Option<Offset>,
    location: ServerLocation,
    /// Servers that hold it.
    copies: usize,
}

/// Where the ranges of one stream are, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    stretches: SmallVec<[Stretch; 1]>,
}

impl Route {
    /// The route that a list of ranges describes. Ranges that nobody holds are not in it.
    pub(crate) fn new(ranges: &[Range]) -> Self {
        let stretches = ranges.iter().filter_map(|range| {
            let server = range.primary()?;
            Some(Stretch {
                start: range.start_offset,
                end: range.end(),
                location: ServerLocation {
                    server: server.server_id,
                    address: server.advertise_addr.clone(),
                },
                copies: range.servers.len(),
            })
        });
        Self {
            stretches: stretches.collect(),
        }
    }

    /// What holds an offset, [`Offset::EARLIEST`] and [`Offset::LATEST`] included. An offset between two ranges belongs to the
    /// later one; one that no range has, to the nearest, which knows the bounds. Appends go to the latest: the last range,
    /// open or about to be followed.
    fn stretch(&self, offset: Offset) -> Option<&Stretch> {
        match offset {
            Offset::LATEST => self.stretches.last(),
            offset => self
                .stretches
                .iter()
                .find(|stretch| stretch.end.is_none_or(|end| offset < end))
                .or_else(|| self.stretches.last()),
        }
    }
}

/// The routes of all streams that were asked for. A stream without one is tried at the server that is connected anyway:
/// a server that has both halves then costs no question.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    known: HashMap<StreamId, Route>,
}

/// Streams whose locations are remembered; beyond it everything is forgotten and asked for again.
const MOST: usize = 65_536;

impl Routes {
    /// Who has a stream at an offset.
    pub(crate) fn location(&self, stream: StreamId, offset: Offset) -> Option<&ServerLocation> {
        let stretch = self.known.get(&stream)?.stretch(offset)?;
        Some(&stretch.location)
    }

    /// How many servers hold a stream at an offset; `None` where that is not known.
    pub(crate) fn copies(&self, stream: StreamId, offset: Offset) -> Option<usize> {
        let route = self.known.get(&stream)?;
        Some(route.stretch(offset).map_or(0, |stretch| stretch.copies))
    }

    pub(crate) fn learn(&mut self, stream: StreamId, route: Route) {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(stream, route);
    }

    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.known.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use sbp_messages::{Range, RangeServer, ReplicaServer};
    use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

    use super::{Route, Routes};

    fn range(index: i32, start: i64, end: i64, servers: &[(i32, bool)]) -> Range {
        let replica = |&(id, is_primary): &(i32, bool)| ReplicaServer {
            range_server: Some(RangeServer {
                server_id: ServerId(id),
                advertise_addr: format!("host{id}:1"),
                ..RangeServer::default()
            }),
            is_primary,
            ..ReplicaServer::default()
        };
        Range {
            stream_id: StreamId(1),
            range_index: RangeIndex(index),
            start_offset: Offset(start),
            end_offset: (end >= 0).then_some(Offset(end)),
            servers: servers.iter().map(replica).collect(),
            ..Range::default()
        }
    }

    #[test]
    fn each_offset_leads_to_the_range_that_has_it() {
        // Trimmed up to 5; sealed at 10 and 20; open from 20.
        let route = Route::new(&[
            range(0, 5, 10, &[(1, true)]),
            range(1, 10, 20, &[(2, false), (3, true)]),
            range(2, 20, -1, &[(4, false)]),
        ]);
        let table = [
            (Offset::EARLIEST, 1),
            (Offset(0), 1),
            (Offset(5), 1),
            (Offset(9), 1),
            (Offset(10), 3),
            (Offset(19), 3),
            (Offset(20), 4),
            (Offset(1_000), 4),
            (Offset::LATEST, 4),
        ];
        for (offset, server) in table {
            assert_eq!(
                route.stretch(offset).unwrap().location.server,
                ServerId(server),
                "{offset}"
            );
        }
        assert_eq!(route.stretch(Offset::LATEST).unwrap().location.address, "host4:1");
        let mut routes = Routes::default();
        routes.learn(StreamId(1), route);
        let copies = [5, 10, 20].map(|offset| routes.copies(StreamId(1), Offset(offset)));
        assert_eq!(copies, [1, 2, 1].map(Some));
        routes.learn(StreamId(1), Route::default());
        assert_eq!(routes.copies(StreamId(1), Offset(0)), Some(0));
    }

    #[test]
    fn a_stream_whose_last_range_is_sealed_is_asked_for_where_that_one_is() {
        let route = Route::new(&[range(0, 0, 10, &[(1, true)])]);
        assert_eq!(route.stretch(Offset(10)).unwrap().location.server, ServerId(1));
        assert_eq!(route.stretch(Offset::LATEST).unwrap().location.server, ServerId(1));
    }

    #[test]
    fn nobody_is_no_location() {
        let mut routes = Routes::default();
        assert_eq!(routes.location(StreamId(1), Offset::LATEST), None);
        routes.learn(StreamId(1), Route::new(&[range(0, 0, -1, &[])]));
        assert_eq!(routes.location(StreamId(1), Offset(0)), None);
        routes.learn(StreamId(1), Route::new(&[range(0, 0, -1, &[(7, true)])]));
        assert_eq!(
            routes.location(StreamId(1), Offset::LATEST).unwrap().server,
            ServerId(7)
        );
        routes.forget(StreamId(1));
        assert_eq!(routes.location(StreamId(1), Offset::LATEST), None);
    }
}
