//! Many streams under one name: records with the same key are in the same one, and so in order.
//!
//! `orders` in 4 streams is `orders-0` to `orders-3`. Each says in its properties which of how many it is, and
//! `orders-0` is made first: whoever asks for another number is refused, because the same keys would go elsewhere.
//! A key's stream is the CRC-32 (IEEE) of its bytes modulo the number of streams, which every language and database
//! can compute.

mod part;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, Stream};

use self::part::{Part, SetError};
use crate::call::answers::only;
use crate::client::Client;
use crate::clock::{left, now};
use crate::error::{ClientError, ErrorKind};
use crate::retry::backoff;

/// The most streams that one name may have.
pub const KEYED_MAX: u32 = 1_024;

/// Streams that hold the records of one name, by the hash of their keys.
#[derive(Clone, Debug)]
pub struct Keyed {
    name: Arc<str>,
    streams: Arc<[Arc<Stream>]>,
}

/// How streams by key are opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyedOptions {
    /// How many streams there are to be; `None`: as many as there are.
    pub streams: Option<u32>,
    /// How many servers hold each record of streams that are made; 0: the server's default, or as the first of them has it.
    pub replicas: i8,
    /// How many of those servers have to acknowledge; 0: a majority, or as the first of them has it.
    pub acks: i8,
    /// How long it may take; `None`: the client's default.
    pub timeout: Option<Duration>,
}

impl Client {
    /// The streams of `name`: those that are there, and those of them that are missing made, all with as many copies as the
    /// first. Without [`KeyedOptions::streams`] there must be some; with it they must be so many.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ALREADY_EXISTS`]: there are others than so many, or a stream of that name is none of them.
    /// [`ErrorCode::NOT_FOUND`]: `streams` is `None`, and there are none. Else that a call failed.
    pub async fn keyed(&self, name: &str, options: KeyedOptions) -> Result<Keyed, ClientError> {
        let KeyedOptions { streams, timeout, .. } = options;
        if let Some(wanted) = streams.filter(|wanted| !(1..=KEYED_MAX).contains(wanted)) {
            let what = format!("{name} can have 1 to {KEYED_MAX} streams, not {wanted}");
            return Err(ClientError::invalid(what));
        }
        let deadline = self.deadline(timeout);
        let first = self.first_of(name, &options, deadline).await?;
        let of = Part::read(&first, name, 0)
            .map_err(|error| refused(name, streams, &error))?
            .of;
        if let Some(wanted) = streams.filter(|&wanted| wanted != of) {
            return Err(refused(name, Some(wanted), &SetError::Others { of }));
        }
        let rest = self.rest_of(name, &first, of, deadline).await?;
        Ok(Keyed {
            name: Arc::from(name),
            streams: std::iter::once(first).chain(rest).collect(),
        })
    }

    /// The first stream, which settles how many there are.
    async fn first_of(
        &self,
        name: &str,
        options: &KeyedOptions,
        deadline: Instant,
    ) -> Result<Arc<Stream>, ClientError> {
        let first = part::stream_name(name, 0);
        let mut attempt = 0;
        loop {
            let of = match (self.look_up(&first, left(deadline)).await, options.streams) {
                (Err(error), Some(of)) if error.code() == ErrorCode::NOT_FOUND => of,
                (found, _) => return found,
            };
            let wanted = Stream {
                replica_nums: options.replicas,
                ack_count: options.acks,
                ..Part { index: 0, of }.stream(name)
            };
            let taken = match only(self.create_streams(vec![wanted], left(deadline)).await?) {
                Err(error) if error.code() == ErrorCode::ALREADY_EXISTS => error,
                created => return created,
            };
            // Somebody else is making it, for another number or with settings of its own, and it may not be there yet.
            attempt += 1;
            let pause = backoff(attempt, &self.config().retry);
            if now() + pause >= deadline {
                return Err(taken);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// The streams behind the first, made where they are missing.
    async fn rest_of(
        &self,
        name: &str,
        first: &Stream,
        of: u32,
        deadline: Instant,
    ) -> Result<Vec<Arc<Stream>>, ClientError> {
        let names: Vec<_> = (1..of).map(|index| part::stream_name(name, index)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut found = self.describe_streams(&[], &names, left(deadline)).await?;
        let is_missing = |found: &Result<Arc<Stream>, ClientError>| matches!(found, Err(error) if error.code() == ErrorCode::NOT_FOUND);
        let missing = (1..of).zip(&found).filter(|(_, found)| is_missing(found));
        let wanted = missing.map(|(index, _)| Stream {
            replica_nums: first.replica_nums,
            ack_count: first.ack_count,
            ..Part { index, of }.stream(name)
        });
        let wanted: Vec<_> = wanted.collect();
        let mut created = self.create_streams(wanted, left(deadline)).await?.into_iter();
        for slot in found.iter_mut().filter(|found| is_missing(found)) {
            *slot = created
                .next()
                .unwrap_or_else(|| Err(ClientError::protocol("a created stream is missing")));
        }
        let mut streams = Vec::with_capacity(found.len());
        for (index, found) in (1..of).zip(found) {
            let stream = found?;
            let part = Part::read(&stream, name, index).and_then(|part| part.among(of));
            part.map_err(|error| refused(name, Some(of), &error))?;
            streams.push(stream);
        }
        Ok(streams)
    }
}

impl Keyed {
    /// The name of the whole.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The streams of the set, in order.
    #[must_use]
    pub fn streams(&self) -> &[Arc<Stream>] {
        &self.streams
    }

    /// Which of the streams holds the records with this key: its place among them.
    #[must_use]
    pub fn place_of(&self, key: &[u8]) -> usize {
        place_of(key, self.streams.len())
    }
}

/// The place of a key's stream among so many.
fn place_of(key: &[u8], streams: usize) -> usize {
    let hash = usize::try_from(crc32fast::hash(key)).unwrap_or(usize::MAX);
    hash.checked_rem(streams).unwrap_or(0)
}

fn refused(name: &str, wanted: Option<u32>, error: &SetError) -> ClientError {
    let what = match (error, wanted) {
        (SetError::Others { of }, Some(wanted)) => {
            format!("{name} is kept in {of} streams by key, and {wanted} were asked for")
        }
        (error, _) => format!("{name} is no name that records are kept under by key: {error}"),
    };
    ClientError::new(ErrorKind::Rejected, ErrorCode::ALREADY_EXISTS, what).with_stream_name(name)
}

#[cfg(test)]
mod tests {
    use super::place_of;

    #[test]
    fn a_key_has_the_place_that_everybody_computes() {
        // The check value of CRC-32 (IEEE) is that of these nine digits.
        assert_eq!(place_of(b"123456789", 1_000_000_000), 0xcbf4_3926 % 1_000_000_000);
        assert_eq!(place_of(b"123456789", 4), 2);
        assert_eq!(place_of(b"", 7), 0);
        assert_eq!(place_of(b"anything", 1), 0);
    }

    #[test]
    fn keys_spread_evenly() {
        for streams in [2, 3, 4, 7, 8, 16, 60, 64] {
            let mut counts = vec![0_usize; streams];
            for number in 0..64_000 {
                counts[place_of(format!("user-{number}").as_bytes(), streams)] += 1;
            }
            let even = 64_000 / streams;
            let within = counts.iter().all(|count| count.abs_diff(even) < even / 4);
            assert!(within, "{streams} streams: {counts:?}");
        }
    }
}
