//! A segment store for tests: the server's end of `sbp-pravega`, over sockets, with segments in memory.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use sbp_pravega::{Call, Connection, Event, NEW, Reply, Request, SegmentInfo, ServerConfig, WriterId};
use sbp_wire::Endpoint;
use sbp_wire::testing::{events, receive, transmitted};

/// A segment.
#[derive(Default)]
pub(crate) struct Segment {
    pub(crate) data: Vec<u8>,
    pub(crate) start: usize,
    pub(crate) is_sealed: bool,
    writers: HashMap<WriterId, i64>,
}

/// What goes wrong with an append.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is stored, and the connection is closed before anybody says so.
    StoredAndLost,
    /// The connection is closed, and it is not stored.
    Lost,
    /// It is stored as two, of which the first is not acknowledged.
    HalfAcknowledged,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) segments: HashMap<String, Segment>,
    /// What goes wrong with the next appends.
    pub(crate) troubles: Vec<Trouble>,
    /// Appends that were asked for.
    pub(crate) appends: usize,
    /// What is answered to the next request, whatever it is.
    pub(crate) answer: Option<Reply>,
    /// Bytes of one answer to a read.
    pub(crate) piece: usize,
    /// The delegation token that every request has to have.
    pub(crate) token: String,
}

/// The delegation token of a request; an append has none, its writer was set up with one.
fn token(request: &Request) -> Option<&str> {
    match request {
        Request::SetupAppend { token, .. }
        | Request::Read { token, .. }
        | Request::Info { token, .. }
        | Request::Create { token, .. }
        | Request::Seal { token, .. }
        | Request::Truncate { token, .. } => Some(token),
        _ => None,
    }
}

/// A running store.
pub(crate) struct TestStore {
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl TestStore {
    pub(crate) fn start() -> Self {
        Self::at("127.0.0.1:0", State::default())
    }

    pub(crate) fn at(address: &str, state: State) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address").to_string();
        let state = Arc::new(Mutex::new(state));
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, shared) = (Arc::clone(&is_over), Arc::clone(&state));
        let accepting = spawn(move || accept(&listener, &shared, &ends));
        Self {
            address,
            state,
            is_over,
            accepting: Some(accepting),
        }
    }

    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut State) -> T) -> T {
        edit(&mut self.state.lock().expect("nobody panics with it"))
    }

    pub(crate) fn segment<T>(&self, name: &str, edit: impl FnOnce(&mut Segment) -> T) -> T {
        self.edit(|state| edit(state.segments.get_mut(name).expect("the segment")))
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            let ended = accepting.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the store panicked");
        }
    }
}

const TICK: Duration = Duration::from_millis(2);

fn accept(listener: &TcpListener, state: &Arc<Mutex<State>>, is_over: &Arc<AtomicBool>) {
    let mut serving = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((socket, _)) => {
                let (state, is_over) = (Arc::clone(state), Arc::clone(is_over));
                serving.push(spawn(move || serve(socket, &state, &is_over)));
            }
            Err(_) => std::thread::sleep(TICK),
        }
    }
    for serving in serving {
        serving.join().expect("a connection is served");
    }
}

/// One connection of a client.
struct Served {
    connection: Connection,
    /// The segments of writers that were set up.
    writers: HashMap<WriterId, String>,
    /// Reads at the end of a segment.
    waiting: Vec<(Call, Request)>,
}

fn serve(mut socket: TcpStream, state: &Mutex<State>, is_over: &AtomicBool) {
    socket.set_nonblocking(false).expect("a socket");
    socket.set_read_timeout(Some(TICK)).expect("a socket");
    let mut served = Served {
        connection: Connection::server(ServerConfig::default(), Instant::now()),
        writers: HashMap::new(),
        waiting: Vec::new(),
    };
    let mut buffer = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        match socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => receive(&mut served.connection, &buffer[..count], Instant::now()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        let mut asked = std::mem::take(&mut served.waiting);
        for event in events(&mut served.connection) {
            if let Event::Request { call, request } = event {
                asked.push((call, request));
            }
        }
        for (call, request) in asked {
            let mut state = state.lock().expect("nobody panics with it");
            match served.answer(&mut state, &request) {
                Some(reply) => served.say(call, &reply),
                None if matches!(request, Request::Read { .. }) => served.waiting.push((call, request)),
                // The connection is lost.
                None => return,
            }
        }
        let bytes = transmitted(&mut served.connection, Instant::now());
        if socket.write_all(&bytes).is_err() || served.connection.is_closed() {
            return;
        }
    }
}

impl Served {
    fn say(&mut self, call: Call, reply: &Reply) {
        let said = self.connection.answer(call, reply, Instant::now());
        said.expect("it is asked for");
    }

    /// `None`: not yet, or never.
    fn answer(&mut self, state: &mut State, request: &Request) -> Option<Reply> {
        if let Some(answer) = state.answer.take() {
            return Some(answer);
        }
        if token(request).is_some_and(|token| token != state.token) {
            return Some(Reply::AuthFailed { code: None });
        }
        let none = |segment: &str| Reply::NoSuchSegment {
            segment: segment.to_owned(),
            offset: None,
        };
        Some(match request {
            Request::SetupAppend { writer, segment, .. } => {
                let Some(found) = state.segments.get(segment) else {
                    return Some(none(segment));
                };
                self.writers.insert(*writer, segment.clone());
                Reply::AppendSetup {
                    segment: segment.clone(),
                    writer: *writer,
                    last: found.writers.get(writer).copied().unwrap_or(NEW),
                }
            }
            Request::Append {
                writer,
                data,
                events,
                last,
            } => return self.append(state, *writer, data, (*events, *last)),
            Request::Read {
                segment,
                offset,
                length,
                ..
            } => {
                let Some(found) = state.segments.get(segment) else {
                    return Some(none(segment));
                };
                let from = usize::try_from(*offset).expect("an offset");
                if from < found.start {
                    return Some(Reply::IsTruncated {
                        segment: segment.clone(),
                        start: found.start as i64,
                        offset: Some(*offset),
                    });
                }
                if from >= found.data.len() && !found.is_sealed {
                    return None;
                }
                let most = (*length).clamp(8, 1 << 21) as usize;
                let most = if state.piece > 0 { state.piece } else { most };
                let data = &found.data[from..found.data.len().min(from + most)];
                Reply::Read {
                    segment: segment.clone(),
                    offset: *offset,
                    is_tail: false,
                    is_end: data.is_empty(),
                    data: data.to_vec().into(),
                }
            }
            Request::Info { segment, .. } => {
                let found = state.segments.get(segment);
                Reply::Info(SegmentInfo {
                    segment: segment.clone(),
                    exists: found.is_some(),
                    is_sealed: found.is_some_and(|found| found.is_sealed),
                    is_deleted: false,
                    modified_ms: 0,
                    length: found.map_or(0, |found| found.data.len() as i64),
                    start: Some(found.map_or(0, |found| found.start as i64)),
                })
            }
            Request::Create { segment, .. } => {
                if state.segments.contains_key(segment) {
                    return Some(Reply::AlreadyExists(segment.clone()));
                }
                state.segments.insert(segment.clone(), Segment::default());
                Reply::Created(segment.clone())
            }
            Request::Seal { segment, .. } => match state.segments.get_mut(segment) {
                Some(found) => {
                    found.is_sealed = true;
                    Reply::Sealed(segment.clone())
                }
                None => none(segment),
            },
            Request::Truncate { segment, offset, .. } => match state.segments.get_mut(segment) {
                Some(found) => {
                    found.start = usize::try_from(*offset).expect("an offset");
                    Reply::Truncated(segment.clone())
                }
                None => none(segment),
            },
            other => panic!("{other:?} is not asked"),
        })
    }

    fn append(
        &mut self,
        state: &mut State,
        writer: WriterId,
        data: &[u8],
        (events, last): (i32, i64),
    ) -> Option<Reply> {
        state.appends += 1;
        let trouble = state.troubles.pop();
        if trouble == Some(Trouble::Lost) {
            return None;
        }
        let segment = &self.writers[&writer];
        let found = state.segments.get_mut(segment).expect("it is set up");
        if found.is_sealed {
            return Some(Reply::IsSealed {
                segment: segment.clone(),
                offset: None,
            });
        }
        let previous = found.writers.insert(writer, last).unwrap_or(NEW);
        assert!(
            previous == NEW || previous + i64::from(events) == last,
            "no event is sent twice"
        );
        found.data.extend_from_slice(data);
        let acknowledged = |number, previous| Reply::Appended {
            writer,
            number,
            previous: Some(previous),
            length: Some(found.data.len() as i64),
        };
        match trouble {
            Some(Trouble::StoredAndLost) => None,
            Some(Trouble::HalfAcknowledged) => Some(acknowledged(last, last - 1)),
            _ => Some(acknowledged(last, previous)),
        }
    }
}
