//! The stream that a partition is imported into.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sbp_client::{Ack, Client, ClientError, FetchOptions, Writer, WriterOptions};
use sbp_messages::{ErrorCode, KeyValue, Stream};
use sbp_record::{MAX_BATCH_LENGTH, RecordsBuilder, inspect};
use sbp_types::{Offset, WriterId};
use sha2::{Digest, Sha256};

use super::error::ImportError;
use super::item::{Incoming, Record, SourcePartition};
use super::numbering::{Numbering, Protocol};
use super::{ImportOptions, PartitionReport};
use crate::pravega::properties;
use crate::records::{damaged, one_at, only, positions};

/// Bytes of a batch, about.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of a record at most: what a batch may have, but for what is around the record.
const LARGEST: usize = MAX_BATCH_LENGTH - (4 << 10);
/// Bytes around the parts of a record, about.
const AROUND: usize = 64;
/// Bytes that may be on their way to the service.
const IN_FLIGHT: usize = 32 << 20;

type Answer = Pin<Box<dyn Future<Output = Result<Ack, ClientError>> + Send>>;

/// What is on its way to the service, in the order in which it was sent.
#[derive(Default)]
pub(super) struct Flight {
    sent: VecDeque<Sent>,
    bytes: usize,
}

struct Sent {
    stream: Arc<str>,
    source: Arc<str>,
    /// Where the batch has to be stored.
    offset: u64,
    bytes: usize,
    answer: Answer,
}

impl Flight {
    /// Waits until no more is on its way than may be.
    pub(super) async fn make_room(&mut self) -> Result<(), ImportError> {
        self.wait(IN_FLIGHT).await
    }

    /// Waits until all is stored.
    pub(super) async fn land(&mut self) -> Result<(), ImportError> {
        self.wait(0).await
    }

    async fn wait(&mut self, most: usize) -> Result<(), ImportError> {
        while self.bytes > most && !self.sent.is_empty() {
            self.land_one().await?;
        }
        Ok(())
    }

    /// Waits until the first of what is on its way is stored; for ever, where nothing is. It may be given up at any time.
    pub(super) async fn land_one(&mut self) -> Result<(), ImportError> {
        let Some(first) = self.sent.front_mut() else {
            return std::future::pending().await;
        };
        let stored = first.answer.as_mut().await;
        if let Some(sent) = self.sent.pop_front() {
            self.bytes -= sent.bytes;
            let ack = stored?;
            let offset = ack.base_offset.and_then(|offset| u64::try_from(offset.0).ok());
            // The service does not say where it has stored what it was sent before, if that is long ago.
            if offset.is_some_and(|offset| offset != sent.offset) {
                return Err(ImportError::Foreign {
                    stream: sent.stream.to_string(),
                    offset: sent.offset,
                    source_name: sent.source.to_string(),
                });
            }
        }
        Ok(())
    }
}

/// Why records are not taken to the last.
#[derive(Debug)]
enum Stop {
    /// The places go on elsewhere than the stream says.
    Gap(u64),
    Unfit {
        place: u64,
        behind: Option<u64>,
        what: String,
    },
}

/// A stream that is being imported into.
pub(super) struct Target {
    client: Client,
    stream: Stream,
    name: Arc<str>,
    source: Arc<str>,
    place: String,
    protocol: Protocol,
    writer: Writer,
    numbering: Numbering,
    /// Records of the stream, those on their way included: the offset of the next one.
    stored: u64,
    /// The place behind the last record that was dealt with; `None`: there was none yet.
    next: Option<u64>,
    builder: RecordsBuilder,
    builder_bytes: usize,
    skips_unfit: bool,
    skips_lost: bool,
    pub(super) report: PartitionReport,
}

impl Target {
    /// Opens the stream of a partition, which is made if it is not there, and finds out where the import stands.
    pub(super) async fn open(
        client: &Client,
        options: &ImportOptions,
        (protocol, source): (Protocol, &Arc<str>),
        part: &SourcePartition,
        name: &str,
    ) -> Result<Self, ImportError> {
        let partition = part.partition;
        let said = protocol.properties(part.lineage.as_ref());
        let stream = find_or_create(client, said.clone(), name).await?;
        let numbering = Numbering::of(protocol, &stream);
        let standing = Standing::find(client, &stream, (protocol, source), options).await?;
        let stored = standing.stored;
        let next = numbering.behind(client, &stream, stored).await?;
        if let (Some(last), None) = (stored.checked_sub(1), next) {
            return Err(unnumbered(name, last));
        }
        let mut target = Self {
            client: client.clone(),
            name: Arc::from(name),
            source: Arc::clone(source),
            place: format!("{}/{}", options.topic, partition & 0xffff_ffff),
            protocol,
            writer: standing.writer,
            numbering,
            stored,
            next,
            builder: RecordsBuilder::new(),
            builder_bytes: 0,
            skips_unfit: options.skip_unfit,
            skips_lost: options.skip_lost,
            report: PartitionReport {
                partition,
                stream: name.to_owned(),
                stream_id: stream.stream_id,
                before: stored,
                ..PartitionReport::default()
            },
            stream: Arc::unwrap_or_clone(stream),
        };
        // A stream that somebody else has made does not say all of it. What it says already holds: of a segment whose predecessors
        // are gone, the source does not tell any more what it followed.
        let lacks = |said: &KeyValue| properties::property(&target.stream, &said.key).is_none();
        let missing: Vec<_> = said.into_iter().flatten().filter(lacks).collect();
        if !missing.is_empty() {
            let properties = properties::with(&target.stream, &missing);
            target.describe(properties).await?;
        }
        Ok(target)
    }

    /// All streams of the partitions that there were are there: the properties say so.
    pub(super) async fn tell_whole(&mut self) -> Result<(), ImportError> {
        match self.numbering.whole(&self.stream) {
            Some(properties) => self.describe(properties).await,
            None => Ok(()),
        }
    }

    /// The place of the next record wanted, if any was imported.
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Takes records.
    pub(super) async fn take(&mut self, records: &Incoming, flight: &mut Flight) -> Result<(), ImportError> {
        loop {
            match self.push_all(records, flight)? {
                None => return flight.make_room().await,
                Some(Stop::Gap(place)) => self.begin_anew(place, flight).await?,
                Some(Stop::Unfit { place, behind, what }) if self.skips_unfit => {
                    tracing::warn!(source = self.place, place, what, "a record of the source is left out");
                    self.report.unfit += 1;
                    match behind {
                        // The next batch says where it is.
                        Some(behind) if self.numbering.is_by_batch() => self.begin_anew(behind, flight).await?,
                        behind => self.next = behind,
                    }
                }
                Some(Stop::Unfit { place, what, .. }) => {
                    // What is before it counts as imported.
                    self.send(flight);
                    flight.land().await?;
                    return Err(ImportError::Unfit {
                        unit: self.protocol.unit(),
                        place: self.place.clone(),
                        sequence: place,
                        what,
                    });
                }
            }
        }
    }

    /// The source does not have these places any more.
    pub(super) async fn miss(&mut self, from: u64, to: u64, flight: &mut Flight) -> Result<(), ImportError> {
        // What is gone before the first record was imported is not part of it.
        if self.stored > 0 {
            if !self.skips_lost {
                self.send(flight);
                flight.land().await?;
                return Err(ImportError::Lost {
                    unit: self.protocol.unit(),
                    place: self.place.clone(),
                    from,
                    to,
                });
            }
            tracing::warn!(source = self.place, from, to, "places are gone from the source");
            self.report.lost += (to - from).saturating_add(1);
        }
        // Where each place counts, the next record says where it goes on.
        if !self.numbering.is_by_batch() {
            self.next = to.checked_add(1);
        }
        Ok(())
    }

    /// Gathers records, and sends full batches; stops where something has to be done first.
    fn push_all(&mut self, records: &Incoming, flight: &mut Flight) -> Result<Option<Stop>, ImportError> {
        let mut stop = None;
        records.for_each(|record| {
            let is_behind = self.next.is_none_or(|next| record.place >= next);
            if stop.is_none() && is_behind {
                stop = self.push(&record, flight).err();
            }
        })?;
        Ok(stop)
    }

    fn push(&mut self, record: &Record<'_>, flight: &mut Flight) -> Result<(), Stop> {
        let Record { place, behind, .. } = *record;
        if !self.numbering.fits(self.stored, self.next, place) {
            return Err(Stop::Gap(place));
        }
        let cost = record.content.len() + record.key.map_or(0, <[u8]>::len) + AROUND;
        let unfit = |what| Stop::Unfit { place, behind, what };
        if cost > LARGEST {
            return Err(unfit(format!("it has {cost} bytes, and a record may have {LARGEST}")));
        }
        if let Some(time_ms) = record.odd_time {
            return Err(unfit(format!(
                "its time, {time_ms} ms, is beyond what a record's can be"
            )));
        }
        if self.builder_bytes + cost > LARGEST {
            self.send(flight);
        }
        let number = place.to_be_bytes();
        let header = self.numbering.header(self.stored, self.builder.is_empty());
        let header = header.map(|name| (name, Some(number.as_slice())));
        let headers = header.as_slice();
        let pushed = self
            .builder
            .push(Some(record.content), record.key, record.time_us, headers);
        pushed.map_err(|error| unfit(error.to_string()))?;
        self.builder_bytes += cost;
        self.stored += 1;
        self.note(place, behind);
        if self.builder_bytes >= BATCH_BYTES {
            self.send(flight);
        }
        Ok(())
    }

    /// Counts a record.
    fn note(&mut self, place: u64, behind: Option<u64>) {
        let report = &mut self.report;
        report.imported += 1;
        report.first.get_or_insert(place);
        report.last = Some(place);
        if let Some(next) = self.next {
            report.left_out += place - next;
        }
        self.next = behind;
    }

    /// Sends what is gathered.
    pub(super) fn send(&mut self, flight: &mut Flight) {
        let records = std::mem::take(&mut self.builder);
        if records.is_empty() {
            return;
        }
        let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let bytes = std::mem::take(&mut self.builder_bytes);
        flight.bytes += bytes;
        flight.sent.push_back(Sent {
            stream: Arc::clone(&self.name),
            source: Arc::clone(&self.source),
            offset: self.stored - count,
            bytes,
            answer: Box::pin(self.writer.append(records)),
        });
    }

    /// The next record has another place than the stream's properties say: these say so before it is stored.
    async fn begin_anew(&mut self, place: u64, flight: &mut Flight) -> Result<(), ImportError> {
        if self.numbering.is_by_batch() {
            self.send(flight);
            flight.land().await?;
            self.next = Some(place);
        }
        self.numbering.begin_anew(self.stored, place);
        self.describe(self.numbering.properties(&self.stream)).await
    }

    /// What the stream stands for is sealed in the source: its properties say so.
    pub(super) async fn seal(&mut self) -> Result<(), ImportError> {
        match self.numbering.sealed(&self.stream) {
            Some(properties) => self.describe(properties).await,
            None => Ok(()),
        }
    }

    /// Gives the stream these properties.
    async fn describe(&mut self, properties: Vec<KeyValue>) -> Result<(), ImportError> {
        describe(&self.client, &self.stream, properties.clone()).await?;
        self.stream.properties = Some(properties);
        Ok(())
    }
}

/// Gives a stream these properties.
pub(super) async fn describe(client: &Client, stream: &Stream, properties: Vec<KeyValue>) -> Result<(), ImportError> {
    let change = Stream {
        stream_id: stream.stream_id,
        properties: Some(properties),
        // Always taken.
        retention_period_ms: stream.retention_period_ms,
        ..Stream::default()
    };
    only(client.update_streams(vec![change], None).await?)?;
    Ok(())
}

/// The stream of that name. One that is not there is made, and keeps its records for ever.
async fn find_or_create(
    client: &Client,
    properties: Option<Vec<KeyValue>>,
    name: &str,
) -> Result<Arc<Stream>, ImportError> {
    let stream = match only(client.describe_streams(&[], &[name], None).await?) {
        Err(error) if error.code() == ErrorCode::NOT_FOUND => {
            let wanted = Stream {
                name: name.to_owned(),
                properties,
                ..Stream::default()
            };
            only(client.create_streams(vec![wanted], None).await?)?
        }
        found => found?,
    };
    match stream.schema {
        None => Ok(stream),
        Some(_) => Err(ImportError::Usage(format!(
            "stream {name} has columns, and what is imported has none: rename that stream, or import into another one"
        ))),
    }
}

/// Where an import stands.
struct Standing {
    writer: Writer,
    stored: u64,
}

impl Standing {
    /// Asks the service how many records the import has stored. Instances of it that still run are shut out.
    async fn find(
        client: &Client,
        stream: &Stream,
        (protocol, source): (Protocol, &Arc<str>),
        options: &ImportOptions,
    ) -> Result<Self, ImportError> {
        let id = stream.stream_id;
        let foreign = |offset| ImportError::Foreign {
            stream: stream.name.clone(),
            offset,
            source_name: source.to_string(),
        };
        let named = |base| writer_id([protocol.word(), source, &options.topic], stream, base);
        // The writer's records begin at this offset: at the first, or where the service had forgotten the one before.
        let mut base = match last_batch(client, stream).await? {
            None => 0,
            Some(last) => {
                let base = u64::try_from(last.base_offset - last.base_sequence).unwrap_or(u64::MAX);
                match last.writer == named(base) {
                    true => base,
                    false => return Err(foreign(u64::try_from(last.base_offset).unwrap_or(0))),
                }
            }
        };
        loop {
            let writer = client.writer(
                id,
                WriterOptions {
                    writer_id: Some(named(base)),
                    compression: options.compression,
                    timeout: options.patience.max(WriterOptions::default().timeout),
                    ..WriterOptions::default()
                },
            );
            let sequence = u64::try_from(writer.next_sequence().await?).unwrap_or(0);
            let latest = u64::try_from(positions(client, id).await?.latest.0).unwrap_or(0);
            let stored = base.saturating_add(sequence);
            if latest <= stored {
                return Ok(Self { writer, stored });
            }
            let last = last_batch(client, stream).await?;
            if sequence > 0 || last.is_none_or(|last| last.end() != latest || last.writer != named(base)) {
                return Err(foreign(stored));
            }
            // The writer was silent for so long that the service forgot it: its records are there.
            base = latest;
        }
    }
}

/// The writer that imports a topic into a stream, from the record at `base` on.
fn writer_id([word, source, topic]: [&str; 3], stream: &Stream, base: u64) -> WriterId {
    let mut hash = Sha256::new();
    let identity = stream
        .identity
        .map_or_else(String::new, |identity| identity.to_string());
    for part in [
        word,
        source,
        topic,
        &stream.stream_id.to_string(),
        &identity,
        &base.to_string(),
    ] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let word = |at: usize| {
        let bytes = hash.iter().skip(at).take(8);
        bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    // No writer is called 0.
    WriterId {
        high: word(0),
        low: word(8) | 1,
    }
}

/// The head of a stream's last batch.
struct LastBatch {
    writer: WriterId,
    base_sequence: i64,
    base_offset: i64,
    last_offset: i64,
}

impl LastBatch {
    fn end(&self) -> u64 {
        u64::try_from(self.last_offset + 1).unwrap_or(0)
    }
}

/// `None`: the stream has no record.
async fn last_batch(client: &Client, stream: &Stream) -> Result<Option<LastBatch>, ImportError> {
    let held = positions(client, stream.stream_id).await?;
    if held.latest <= held.earliest {
        return Ok(None);
    }
    let entry = one_at(stream.stream_id, Offset(held.latest.0 - 1));
    let fetched = client.fetch_one(entry, FetchOptions::default()).await?;
    let Some(last) = fetched.batches.last() else {
        return Ok(None);
    };
    let head = inspect(std::slice::from_ref(&last.bytes), false);
    let head = head.map_err(|error| damaged(error.to_string()))?;
    Ok(Some(LastBatch {
        writer: head.meta.writer_id,
        base_sequence: head.meta.base_sequence,
        base_offset: last.base_offset.0,
        last_offset: last.last_offset.0,
    }))
}

fn unnumbered(stream: &str, offset: u64) -> ImportError {
    ImportError::Usage(format!(
        "the last record of stream {stream}, at offset {offset}, does not say what it was in the source: it was trimmed, or \
         others have appended; import into another stream, or delete this one"
    ))
}
