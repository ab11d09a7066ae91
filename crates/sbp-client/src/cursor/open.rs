//! Opening a cursor: finding its stream, or making it, and reading the last commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sbp_messages::{ErrorCode, Stream};
use sbp_types::{Offset, StreamId};

use super::commits::{bounds, commits, is_trimmed};
use super::holder::Shared;
use super::record::{CommittedPlace, Holder, Places};
use super::standing::Standing;
use super::{CursorOptions, beyond_the_end, stream_name};
use crate::call::answers::only;
use crate::client::Client;
use crate::clock::left;
use crate::error::ClientError;
use crate::position::{Position, Positions};

/// How often the last record may turn out to be trimmed while it is read: each time somebody else has committed.
const CHASES: u32 = 10;

pub(super) async fn open(
    client: &Client,
    name: &str,
    streams: Vec<Arc<Stream>>,
    options: CursorOptions,
) -> Result<Arc<Shared>, ClientError> {
    let stream_name = stream_name(name)?;
    if streams.is_empty() {
        return Err(ClientError::invalid("a cursor has at least one stream"));
    }
    let deadline = client.deadline(options.timeout);
    let about = |error: ClientError| error.with_stream_name(&stream_name);
    let stream = find_or_create(client, &stream_name, &streams, deadline)
        .await
        .map_err(about)?;
    let (bounds, mut places) = last_commit(client, stream, deadline).await.map_err(about)?;
    for stream in &streams {
        recognise(name, stream, &mut places, options.forget_replaced)?;
    }
    // The first commit stores where they begin, too: "latest" is settled once, not by each holder anew.
    places.extend(starts(client, name, &streams, &places, options.start, deadline).await?);
    let untrimmed = bounds.latest.distance_from(bounds.earliest).saturating_sub(1);
    let standing = Standing::new(Holder::new(), bounds.latest, places);
    Shared::new(client.clone(), name.to_owned(), stream, streams, standing, untrimmed)
}

/// Makes sure that a place is kept for this very stream, and not for one that had its number before. A place of which
/// that was not noted is taken for the stream's, and notes it from now on. One of another stream is forgotten if that is
/// wanted.
fn recognise(cursor: &str, stream: &Stream, places: &mut Places, forget_replaced: bool) -> Result<(), ClientError> {
    let Some(place) = places.get_mut(&stream.stream_id) else {
        return Ok(());
    };
    match (place.identity, stream.identity) {
        (Some(meant), Some(found)) if meant != found && forget_replaced => {
            places.remove(&stream.stream_id);
            Ok(())
        }
        (Some(meant), Some(found)) if meant != found => {
            let what = format!(
                "the stream {:?} in which cursor {cursor} came to offset {}",
                place.name, place.next
            );
            let remedy = format!(
                "\"sbp cursor set {cursor} {} --to earliest --replaced\" gives the old place up",
                stream.name
            );
            let error = ClientError::replaced(stream, meant, &what).with_remedy(&remedy);
            Err(error.with_offset(place.next))
        }
        (known, found) => {
            place.identity = known.or(found);
            Ok(())
        }
    }
}

/// The last commit of a cursor that is there.
pub(super) async fn committed(client: &Client, name: &str, timeout: Option<Duration>) -> Result<Places, ClientError> {
    let stream_name = stream_name(name)?;
    let deadline = client.deadline(timeout);
    let about = |error: ClientError| error.with_stream_name(&stream_name);
    let stream = client.look_up(&stream_name, left(deadline)).await.map_err(about)?;
    let (_, places) = last_commit(client, stream.stream_id, deadline).await.map_err(about)?;
    Ok(places)
}

/// The cursor's own stream. It is made with as many copies as the one of its streams that has most: where that can be
/// read, its place is known too.
async fn find_or_create(
    client: &Client,
    name: &str,
    streams: &[Arc<Stream>],
    deadline: Instant,
) -> Result<StreamId, ClientError> {
    match client.look_up(name, left(deadline)).await {
        Err(error) if error.code() == ErrorCode::NOT_FOUND => {}
        found => return Ok(found?.stream_id),
    }
    let copies = streams.iter().map(|stream| (stream.replica_nums, stream.ack_count));
    let (replica_nums, ack_count) = copies.max().unwrap_or_default();
    let wanted = Stream {
        name: name.to_owned(),
        replica_nums,
        ack_count,
        ..Stream::default()
    };
    // Two that make it at once get the same one, also where they want different numbers of copies.
    match only(client.create_streams(vec![wanted], left(deadline)).await?) {
        Err(error) if error.code() == ErrorCode::ALREADY_EXISTS => {
            Ok(client.look_up(name, left(deadline)).await?.stream_id)
        }
        created => Ok(created?.stream_id),
    }
}

/// The bounds of a cursor's stream, and what the last record says; nothing where there is none.
async fn last_commit(client: &Client, stream: StreamId, deadline: Instant) -> Result<(Positions, Places), ClientError> {
    let mut chases = 0;
    loop {
        let bounds = bounds(client, stream, deadline).await?;
        if bounds.earliest >= bounds.latest {
            return Ok((bounds, Places::new()));
        }
        let last = Offset(bounds.latest.0 - 1);
        match commits(client, stream, last, bounds.latest, deadline).await {
            Ok(mut records) => match records.pop() {
                Some(record) => return Ok((bounds, record.places)),
                None => return Err(ClientError::incomplete("the last commit is not to be found").with_offset(last)),
            },
            // Somebody has committed and trimmed it in between.
            Err(error) if is_trimmed(&error) && chases < CHASES => chases += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Where each of the streams begins that was not committed before.
async fn starts(
    client: &Client,
    name: &str,
    streams: &[Arc<Stream>],
    committed: &Places,
    start: Position,
    deadline: Instant,
) -> Result<Places, ClientError> {
    let new = streams
        .iter()
        .filter(|stream| !committed.contains_key(&stream.stream_id));
    let new: Vec<_> = new.collect();
    let ids: Vec<_> = new.iter().map(|stream| stream.stream_id).collect();
    let settled = match start {
        // No stream ends before its first offset.
        Position::At(next) if next > Offset(0) => {
            let held = client.positions(&ids, left(deadline)).await?;
            let within = |(held, stream): (Result<Positions, _>, &&Arc<Stream>)| match held?.latest {
                end if next > end => Err(beyond_the_end(name, stream, next, end)),
                _ => Ok(next),
            };
            held.into_iter().zip(&new).map(within).collect()
        }
        _ => {
            let wanted: Vec<_> = ids.iter().map(|&stream| (stream, start)).collect();
            client.settle(&wanted, left(deadline)).await?
        }
    };
    let place = |(stream, next): (&&Arc<Stream>, Result<Offset, ClientError>)| {
        let place = CommittedPlace {
            stream: stream.stream_id,
            name: stream.name.clone(),
            identity: stream.identity,
            next: next?,
        };
        Ok((stream.stream_id, place))
    };
    new.iter().zip(settled).map(place).collect()
}
