//! Where streams are, as far as is known: pure, a table of what a placement driver said.

use std::collections::HashMap;

use sbp_messages::{Range, ReplicaServer, ReplicaState};
use sbp_types::{Offset, ServerId, StreamId};
use smallvec::SmallVec;

use crate::config::ReadFrom;

/// A server that holds ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerLocation {
    /// The server's number, by which one is known that is connected already.
    pub(crate) server: ServerId,
    /// Where to dial it otherwise. Text of a peer.
    pub(crate) address: String,
}

impl ServerLocation {
    fn of(replica: &ReplicaServer) -> Option<Self> {
        let server = replica.range_server.as_ref()?;
        Some(Self {
            server: server.server_id,
            address: server.advertise_addr.clone(),
        })
    }
}

/// One range and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    start: Offset,
    /// `None` while it is open.
    end: Option<Offset>,
    /// Those that hold all of it, the one that takes its appends first.
    servers: SmallVec<[ServerLocation; 1]>,
    /// Which of them it is read from first.
    first: usize,
    /// Which of them it is read from: the next one after each that did not answer.
    reading: usize,
}

impl Stretch {
    fn new(range: &Range) -> Option<Self> {
        let primary = range.primary()?;
        let is_primary = |replica: &ReplicaServer| {
            let server = replica.range_server.as_ref();
            server.is_some_and(|server| server.server_id == primary.server_id)
        };
        let complete = |replica: &&ReplicaServer| is_primary(replica) || replica.state != ReplicaState::COPYING;
        let mut servers: Vec<_> = range.servers.iter().filter(complete).collect();
        servers.sort_by_key(|replica| !is_primary(replica));
        Some(Self {
            start: range.start_offset,
            end: range.end(),
            servers: servers.into_iter().filter_map(ServerLocation::of).collect(),
            first: 0,
            reading: 0,
        })
    }

    /// Reads from one of the servers, which a number chooses.
    fn spread(&mut self, number: u64) {
        let servers = u64::try_from(self.servers.len().max(1)).unwrap_or(1);
        self.first = usize::try_from(number % servers).unwrap_or(0);
        self.reading = self.first;
    }

    fn primary(&self) -> Option<&ServerLocation> {
        self.servers.first()
    }
}

/// Where the ranges of one stream are, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    stretches: SmallVec<[Stretch; 1]>,
}

impl Route {
    /// The route that a list of ranges describes. Ranges that nobody holds are not in it.
    pub(crate) fn new(ranges: &[Range]) -> Self {
        let stretches = ranges.iter().filter_map(Stretch::new);
        Self {
            stretches: stretches.collect(),
        }
    }

    /// What holds an offset, [`Offset::EARLIEST`] and [`Offset::LATEST`] included. An offset between two ranges belongs to the
    /// later one; one that no range has, to the nearest, which knows the bounds. Appends go to the latest: the last range,
    /// open or about to be followed.
    fn stretch(&self, offset: Offset) -> Option<&Stretch> {
        self.stretches.get(self.place(offset)?)
    }

    fn place(&self, offset: Offset) -> Option<usize> {
        let last = self.stretches.len().checked_sub(1)?;
        let mut stretches = self.stretches.iter();
        let found = match offset {
            Offset::LATEST => None,
            offset => stretches.position(|stretch| stretch.end.is_none_or(|end| offset < end)),
        };
        Some(found.unwrap_or(last))
    }

    /// Goes on reading where was read before, in ranges that the same servers hold.
    fn read_as(&mut self, before: &Self) {
        for stretch in &mut self.stretches {
            let same = |known: &&Stretch| known.start == stretch.start && known.servers == stretch.servers;
            if let Some(known) = before.stretches.iter().find(same) {
                stretch.reading = known.reading;
            }
        }
    }
}

/// The routes of all streams that were asked for. A stream without one is tried at the server that is connected anyway:
/// a server that has both halves then costs no question.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    known: HashMap<StreamId, Route>,
    /// Reads are spread over the servers that hold a stream, beginning with one that this number and the stream's choose. `None`:
    /// they begin with the primary.
    spread: Option<u64>,
}

/// Streams whose locations are remembered; beyond it everything is forgotten and asked for again.
const MOST: usize = 65_536;

impl Routes {
    /// Routes of a client that reads from here.
    pub(crate) fn reading_from(read_from: ReadFrom) -> Self {
        let spread = match read_from {
            ReadFrom::Primary => None,
            ReadFrom::Any => Some(fastrand::u64(..)),
        };
        Self {
            known: HashMap::new(),
            spread,
        }
    }

    /// Which of these streams nobody has told of, although reads of them are to be spread over the servers that hold them.
    pub(crate) fn to_spread(&self, streams: impl Iterator<Item = StreamId>) -> Vec<StreamId> {
        let mut unknown: Vec<_> = match self.spread {
            None => Vec::new(),
            Some(_) => streams.filter(|stream| !self.known.contains_key(stream)).collect(),
        };
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Who is asked for a stream at an offset; for [`Offset::LATEST`] the server that takes the appends, which alone knows where
    /// the stream ends.
    pub(crate) fn location(&self, stream: StreamId, offset: Offset) -> Option<&ServerLocation> {
        let stretch = self.known.get(&stream)?.stretch(offset)?;
        match offset {
            Offset::LATEST => stretch.primary(),
            _ => stretch.servers.get(stretch.reading).or_else(|| stretch.primary()),
        }
    }

    /// As [`location`](Self::location), of the servers that are not silent, if there is one: it is asked from now on. Where all
    /// are silent it is the one whose turn it is.
    pub(crate) fn location_heard(
        &mut self,
        stream: StreamId,
        offset: Offset,
        is_silent: impl Fn(&ServerLocation) -> bool,
    ) -> Option<&ServerLocation> {
        for _ in 0..self.copies(stream, offset).unwrap_or(0) {
            if !self.location(stream, offset).is_some_and(&is_silent) {
                break;
            }
            self.read_elsewhere(stream, offset);
        }
        self.location(stream, offset)
    }

    /// The server that was asked for a stream at an offset did not answer: the next one that holds it is asked. `false` when
    /// each was: then the first one's turn has come again, and it is worth asking where the stream is now.
    pub(crate) fn read_elsewhere(&mut self, stream: StreamId, offset: Offset) -> bool {
        let Some(route) = self.known.get_mut(&stream).filter(|_| offset != Offset::LATEST) else {
            return false;
        };
        let place = route.place(offset);
        let Some(stretch) = place.and_then(|place| route.stretches.get_mut(place)) else {
            return false;
        };
        stretch.reading += 1;
        if stretch.reading >= stretch.servers.len() {
            stretch.reading = 0;
        }
        stretch.reading != stretch.first
    }

    /// How many servers hold a stream at an offset; `None` where that is not known.
    pub(crate) fn copies(&self, stream: StreamId, offset: Offset) -> Option<usize> {
        let route = self.known.get(&stream)?;
        Some(route.stretch(offset).map_or(0, |stretch| stretch.servers.len()))
    }

    pub(crate) fn learn(&mut self, stream: StreamId, mut route: Route) {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        if let Some(number) = self.spread {
            // Neighbouring streams begin with different servers, and each of their ranges with the same place.
            let number = number.wrapping_add(stream.0.unsigned_abs());
            route.stretches.iter_mut().for_each(|stretch| stretch.spread(number));
        }
        if let Some(before) = self.known.get(&stream) {
            route.read_as(before);
        }
        self.known.insert(stream, route);
    }

    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.known.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use sbp_messages::{Range, RangeServer, ReplicaServer, ReplicaState};
    use sbp_types::{Offset, RangeIndex, ServerId, StreamId};

    use super::{Route, Routes, ServerLocation};

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
            assert_eq!(primary(&route, offset).server, ServerId(server), "{offset}");
        }
        assert_eq!(primary(&route, Offset::LATEST).address, "host4:1");
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
        assert_eq!(primary(&route, Offset(10)).server, ServerId(1));
        assert_eq!(primary(&route, Offset::LATEST).server, ServerId(1));
    }

    #[test]
    fn every_complete_copy_is_tried_before_anybody_is_asked_where_they_are() {
        let stream = StreamId(1);
        let ranges = || {
            let mut sealed = range(0, 0, 10, &[(2, false), (1, true), (3, false), (4, false)]);
            sealed.servers[2].state = ReplicaState::COPYING;
            [sealed, range(1, 10, -1, &[(1, true), (2, false)])]
        };
        let mut routes = Routes::default();
        routes.learn(stream, Route::new(&ranges()));
        let at = |routes: &Routes, offset| routes.location(stream, offset).unwrap().server.0;
        let mut read = vec![at(&routes, Offset(3))];
        while routes.read_elsewhere(stream, Offset(3)) {
            read.push(at(&routes, Offset(3)));
            // Asked for again for another reason: who is read from stays.
            routes.learn(stream, Route::new(&ranges()));
        }
        assert_eq!(read, [1, 2, 4], "the one that is being copied to has not got it yet");
        assert_eq!(at(&routes, Offset(3)), 1, "the first one again");
        assert_eq!(at(&routes, Offset(10)), 1, "another range");
        assert!(routes.read_elsewhere(stream, Offset(10)));
        assert_eq!((at(&routes, Offset(10)), at(&routes, Offset::LATEST)), (2, 1));
        assert!(
            !routes.read_elsewhere(stream, Offset::LATEST),
            "appends have one server"
        );
        routes.learn(stream, Route::new(&[range(1, 10, -1, &[(2, true), (3, false)])]));
        assert_eq!(at(&routes, Offset(10)), 2, "other servers: the primary");
    }

    #[test]
    fn a_server_that_is_not_silent_is_asked_whichever_was_asked_last_and_where_all_are_each_in_its_turn() {
        let stream = StreamId(1);
        let copies = range(0, 0, 10, &[(1, true), (2, false), (3, false)]);
        let mut routes = Routes::default();
        routes.learn(
            stream,
            Route::new(&[copies, range(1, 10, -1, &[(2, true), (1, false)])]),
        );
        let asked = |routes: &mut Routes, offset, silent: &[i32]| {
            let is_silent = |location: &ServerLocation| silent.contains(&location.server.0);
            routes.location_heard(stream, offset, is_silent).unwrap().server.0
        };
        let table: [(&[i32], i32); 6] = [(&[], 1), (&[2], 1), (&[1], 2), (&[2], 3), (&[3], 1), (&[1, 2], 3)];
        for (silent, expected) in table {
            assert_eq!(asked(&mut routes, Offset(3), silent), expected, "{silent:?} are silent");
        }
        let mut in_turn = Vec::new();
        for _ in 0..4 {
            in_turn.push(asked(&mut routes, Offset(3), &[1, 2, 3]));
            // It did not answer.
            routes.read_elsewhere(stream, Offset(3));
        }
        assert_eq!(in_turn, [3, 1, 2, 3]);
        assert_eq!(
            asked(&mut routes, Offset::LATEST, &[2]),
            2,
            "where the stream ends it alone knows"
        );
        assert_eq!(routes.location_heard(StreamId(9), Offset(0), |_| true), None);
    }

    #[test]
    fn reads_that_are_spread_begin_anywhere_and_still_try_every_copy() {
        let three = |start| range(0, start, -1, &[(1, true), (2, false), (3, false)]);
        let mut routes = Routes {
            spread: Some(7),
            ..Routes::default()
        };
        let streams = || (1..=6).map(StreamId);
        assert_eq!(routes.to_spread(streams()).len(), 6);
        let mut firsts = Vec::new();
        for stream in streams() {
            routes.learn(stream, Route::new(&[three(0)]));
            let at = |routes: &Routes, offset| routes.location(stream, offset).unwrap().server.0;
            assert_eq!(at(&routes, Offset::LATEST), 1, "the primary knows where a stream ends");
            let mut read = vec![at(&routes, Offset(3))];
            firsts.push(read[0]);
            while routes.read_elsewhere(stream, Offset(3)) {
                read.push(at(&routes, Offset(3)));
                routes.learn(stream, Route::new(&[three(0)]));
            }
            read.sort_unstable();
            assert_eq!(read, [1, 2, 3]);
        }
        firsts.sort_unstable();
        assert_eq!(firsts, [1, 1, 2, 2, 3, 3]);
        assert!(routes.to_spread(streams()).is_empty());
        assert!(Routes::default().to_spread(streams()).is_empty());
    }

    fn primary(route: &Route, offset: Offset) -> &ServerLocation {
        route.stretch(offset).unwrap().primary().unwrap()
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
