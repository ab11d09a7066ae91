//! A peer that sends whatever bytes it likes.

use std::io::ErrorKind;
use std::net::SocketAddr;

use sbp_e2e::wait::bounded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const NEW: i64 = i64::MIN;

pub(crate) fn frame(kind: i32, payload: &[u8]) -> Vec<u8> {
    let length = i32::try_from(payload.len()).unwrap();
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), payload].concat()
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

pub(crate) fn long(number: i64) -> [u8; 8] {
    number.to_be_bytes()
}

pub(crate) fn int(number: usize) -> [u8; 4] {
    i32::try_from(number).unwrap().to_be_bytes()
}

pub(crate) fn id(writer: u128) -> [u8; 16] {
    writer.to_be_bytes()
}

/// An event as it stands in a segment.
pub(crate) fn event(content: &[u8]) -> Vec<u8> {
    [&int(0)[..], &int(content.len()), content].concat()
}

/// A frame that came, to be read field by field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) kind: i32,
    left: Vec<u8>,
}

impl Answer {
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let rest = self.left.split_off(length);
        std::mem::replace(&mut self.left, rest)
    }

    pub(crate) fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.bytes(8).try_into().unwrap())
    }

    pub(crate) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.bytes(1) == [1]
    }

    pub(crate) fn id(&mut self) -> u128 {
        u128::from_be_bytes(self.bytes(16).try_into().unwrap())
    }

    pub(crate) fn text(&mut self) -> String {
        let length = u16::from_be_bytes(self.bytes(2).try_into().unwrap());
        String::from_utf8(self.bytes(usize::from(length))).unwrap()
    }
}

/// A connection that has said Hello.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        let mut raw = Self::silent(server).await;
        raw.send(&frame(-127, &[int(16), int(5)].concat())).await;
        let mut hello = raw.answer().await;
        assert_eq!((hello.kind, hello.int(), hello.int()), (-127, 16, 5));
        raw
    }

    /// One that has said nothing.
    pub(crate) async fn silent(server: SocketAddr) -> Self {
        Self(bounded(TcpStream::connect(server)).await.unwrap())
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        bounded(self.0.write_all(bytes)).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let mut head = [0; 8];
        bounded(self.0.read_exact(&mut head)).await.unwrap();
        let [kind, length] = [0, 4].map(|place| i32::from_be_bytes(head[place..place + 4].try_into().unwrap()));
        let mut left = vec![0; usize::try_from(length).unwrap()];
        bounded(self.0.read_exact(&mut left)).await.unwrap();
        Answer { kind, left }
    }

    pub(crate) async fn ask(&mut self, kind: i32, payload: &[u8]) -> Answer {
        self.send(&frame(kind, payload)).await;
        self.answer().await
    }

    /// Makes a segment.
    pub(crate) async fn create(&mut self, segment: &str) -> i32 {
        let payload = [&long(1)[..], &text(segment), &int(0), &[0], &text(""), &long(0)].concat();
        self.ask(20, &payload).await.kind
    }

    /// Asks with a request whose fields are its id, the segment and a token.
    pub(crate) async fn about(&mut self, kind: i32, segment: &str) -> Answer {
        self.ask(kind, &[&long(7)[..], &text(segment), &text("")].concat())
            .await
    }

    /// Sets a writer up. Returns the number of its last event.
    pub(crate) async fn set_up(&mut self, writer: u128, segment: &str) -> i64 {
        let payload = [&long(2)[..], &id(writer), &text(segment), &text("")].concat();
        let mut answer = self.ask(1, &payload).await;
        assert_eq!((answer.kind, answer.long(), answer.text()), (2, 2, segment.to_owned()));
        assert_eq!(answer.id(), writer);
        answer.long()
    }

    /// Appends bytes. Returns the number that is stored, the one before, and the segment's length.
    pub(crate) async fn append(&mut self, writer: u128, data: &[u8], events: usize, last: i64) -> (i64, i64, i64) {
        self.send(&append(writer, data, events, last)).await;
        self.appended(writer).await
    }

    /// What comes of an append.
    pub(crate) async fn appended(&mut self, writer: u128) -> (i64, i64, i64) {
        let mut answer = self.answer().await;
        assert_eq!((answer.kind, answer.id()), (7, writer));
        let (number, previous, request, length) = (answer.long(), answer.long(), answer.long(), answer.long());
        assert_eq!(request, 3);
        (number, previous, length)
    }

    /// Reads: whether it is the tail, whether the end, and the bytes.
    pub(crate) async fn read(&mut self, segment: &str, offset: i64, length: usize) -> (bool, bool, Vec<u8>) {
        let mut answer = self.ask(9, &read(segment, offset, length)).await;
        assert_eq!(answer.kind, 10, "{answer:?}");
        assert_eq!((answer.text(), answer.long()), (segment.to_owned(), offset));
        let (is_tail, is_end) = (answer.bool(), answer.bool());
        let length = usize::try_from(answer.int()).unwrap();
        let data = answer.bytes(length);
        assert_eq!(answer.long(), 4);
        (is_tail, is_end, data)
    }

    /// All bytes of a segment from an offset on.
    pub(crate) async fn read_all(&mut self, segment: &str, mut offset: i64) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (is_tail, is_end, data) = self.read(segment, offset, 100_000).await;
            offset += i64::try_from(data.len()).unwrap();
            all.extend(data);
            if is_tail || is_end {
                return all;
            }
        }
    }

    /// Whether a segment is sealed, its length, and where it begins.
    pub(crate) async fn info(&mut self, segment: &str) -> (bool, i64, i64) {
        let mut answer = self.about(11, segment).await;
        assert_eq!((answer.kind, answer.long(), answer.text()), (12, 7, segment.to_owned()));
        let (exists, is_sealed, is_deleted) = (answer.bool(), answer.bool(), answer.bool());
        assert_eq!((exists, is_deleted), (true, false));
        let (_modified, length, start) = (answer.long(), answer.long(), answer.long());
        (is_sealed, length, start)
    }

    /// Truncates a segment.
    pub(crate) async fn truncate(&mut self, segment: &str, offset: i64) -> i32 {
        let payload = [&long(5)[..], &text(segment), &long(offset), &text("")].concat();
        self.ask(38, &payload).await.kind
    }

    /// Nothing more comes until the server closes the connection.
    pub(crate) async fn is_closed(&mut self, what: &str) {
        let mut rest = Vec::new();
        if let Err(error) = bounded(self.0.read_to_end(&mut rest)).await {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}");
        }
        assert_eq!(rest, Vec::<u8>::new(), "{what}");
    }

    /// It is answered.
    pub(crate) async fn is_served(&mut self) {
        assert_eq!(self.ask(100, &[]).await.kind, 100);
    }
}

/// A read.
pub(crate) fn read(segment: &str, offset: i64, length: usize) -> Vec<u8> {
    [&text(segment)[..], &long(offset), &int(length), &text(""), &long(4)].concat()
}

/// An append in one frame.
pub(crate) fn append(writer: u128, data: &[u8], events: usize, last: i64) -> Vec<u8> {
    end(writer, data.len(), data, events, last)
}

/// The end of an append, whose block has so many bytes of whole events.
pub(crate) fn end(writer: u128, whole: usize, data: &[u8], events: usize, last: i64) -> Vec<u8> {
    let payload = [
        &id(writer)[..],
        &int(whole),
        &int(data.len()),
        data,
        &int(events),
        &long(last),
        &long(3),
    ]
    .concat();
    frame(4, &payload)
}

/// A block.
pub(crate) fn block(writer: u128, data: &[u8]) -> Vec<u8> {
    frame(3, &[&id(writer)[..], data].concat())
}

/// An append that needs the segment to have a length.
pub(crate) fn conditional(writer: u128, number: i64, expected: i64, content: &[u8]) -> Vec<u8> {
    let payload = [
        &id(writer)[..],
        &long(number),
        &long(expected),
        &event(content),
        &long(3),
    ]
    .concat();
    frame(5, &payload)
}
