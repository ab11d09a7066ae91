//! Import of TANK topics, from a running broker or from its files, and of streams of Pravega: into a stream for each partition
//! or segment.
//!
//! A source (`source`) gives the records of partitions (`item`), each with its place: the number of a message, or the byte at
//! which an event begins. The target appends them in their order (`target`), and keeps the places with them (`numbering`).
//!
//! The import is an idempotent writer whose name follows from source and stream, and whose sequence counts the records
//! imported. So a second run asks the service where the first one ended, and goes on there: nothing is repeated and nothing
//! left out, also where the first one was killed. A run shuts out those that still go on.

mod error;
mod files;
mod gone;
mod item;
mod numbering;
mod patience;
mod segments;
mod source;
mod target;

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use sbp_client::Client;
use sbp_messages::is_valid_stream_name;
use sbp_record::Compression;
use sbp_types::StreamId;

pub use self::error::ImportError;
use self::item::{Item, SourcePartition};
use self::numbering::Protocol;
pub use self::segments::PravegaFrom;
use self::segments::PravegaStream;
pub use self::source::ImportFrom;
use self::source::{Follow, Source, Topic};
use self::target::{Flight, Target};

/// What is imported, and how.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The topic, or the stream of Pravega as `scope/stream`.
    pub topic: String,
    /// Its partitions; none: all. Of Pravega all segments are imported.
    pub partitions: Vec<u16>,
    /// The stream, for an import of one partition; `None`: `topic/partition`, or `scope/stream/segment`.
    pub stream: Option<String>,
    /// What the source is called, so that a second run knows the first; `None`: its address or path.
    pub source: Option<String>,
    /// Whether to go on when the end is reached.
    pub follow: bool,
    /// Whether records are left out that no stream can hold. Else they end the import.
    pub skip_unfit: bool,
    /// Whether to go on behind what the source has no more. Else they end the import.
    pub skip_lost: bool,
    /// How records are stored.
    pub compression: Compression,
    /// How long a server or a service that does not answer is waited for.
    pub patience: Duration,
}

/// What became of one partition, or of one segment: there the places are bytes, and what it counts are events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionReport {
    /// The partition's number, or the segment's: its epoch is in the upper half.
    pub partition: i64,
    /// The stream's name.
    pub stream: String,
    /// Its number.
    pub stream_id: StreamId,
    /// Messages that were imported by earlier runs.
    pub before: u64,
    /// Messages that this run imported.
    pub imported: u64,
    /// The number of the first of these.
    pub first: Option<u64>,
    /// That of the last.
    pub last: Option<u64>,
    /// Numbers between them that no message has: the broker has compacted the topic.
    pub left_out: u64,
    /// Messages left out because no stream can hold them.
    pub unfit: u64,
    /// Messages, or bytes, that the source had no more.
    pub lost: u64,
}

/// What was imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Each partition.
    pub partitions: Vec<PartitionReport>,
    /// What is odd about the source.
    pub notes: Vec<String>,
}

/// How far an import is: in messages of a broker, or in bytes of its files or of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is done.
    pub done: u64,
    /// Of so much.
    pub all: u64,
}

/// Imports a topic. Ends at the end of what the source has, or when `stop` does; what was taken until then is stored.
///
/// # Errors
/// [`ImportError`]. What was imported before is stored, and a second run goes on behind it.
pub async fn import_tank(
    client: &Client,
    from: &ImportFrom,
    options: &ImportOptions,
    stop: impl Future<Output = ()>,
    progress: impl FnMut(Progress),
) -> Result<ImportReport, ImportError> {
    let name = match &options.source {
        Some(name) => name.clone(),
        None => from.name()?,
    };
    let topic = Topic::find(from, &options.topic);
    import(client, (Protocol::Tank, &name), topic, options, stop, progress).await
}

/// Imports a stream of Pravega: its segments, each into a stream, and those that follow one only when it is imported to its end.
/// Ends at the end of what the segments have, or when `stop` does; what was taken until then is stored.
///
/// # Errors
/// [`ImportError`]. What was imported before is stored, and a second run goes on behind it.
pub async fn import_pravega(
    client: &Client,
    from: &PravegaFrom,
    options: &ImportOptions,
    stop: impl Future<Output = ()>,
    progress: impl FnMut(Progress),
) -> Result<ImportReport, ImportError> {
    let stream = Topic::Segments(PravegaStream::find(from, &options.topic)?);
    // The number of a segment has ten digits at most.
    if !is_valid_stream_name(&format!("{}/{}", options.topic, i32::MAX)) || options.topic.starts_with("_sbp/") {
        return Err(ImportError::Usage(format!(
            "no stream here can be called {}/0: names have letters, digits and ._/-, begin with a letter or _, and have 255 \
             characters at most",
            options.topic
        )));
    }
    let name = options.source.as_deref().unwrap_or(from.name());
    import(client, (Protocol::Pravega, name), stream, options, stop, progress).await
}

async fn import(
    client: &Client,
    (protocol, name): (Protocol, &str),
    topic: Topic,
    options: &ImportOptions,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(Progress),
) -> Result<ImportReport, ImportError> {
    let mut found = chosen(topic.partitions(options.patience).await?, options)?;
    let gone = match protocol {
        Protocol::Tank => Vec::new(),
        Protocol::Pravega => gone::segments(client, &options.topic, &mut found).await?,
    };
    let mut import = Import {
        client,
        options,
        protocol,
        name: Arc::from(name),
        targets: BTreeMap::new(),
        flight: Flight::default(),
        all: 0,
        done: 0,
    };
    let mut wanted = Vec::with_capacity(found.len());
    for part in &found {
        wanted.push((part.partition, import.begin(part).await?));
    }
    for target in import.targets.values_mut() {
        target.tell_whole().await?;
    }
    let mut notes = gone::end(client, gone).await?;
    let follow = match (options.follow, &options.stream) {
        (false, _) => Follow::No,
        (true, None) if options.partitions.is_empty() => Follow::AlsoNewPartitions,
        (true, _) => Follow::ThesePartitions,
    };
    let mut source = topic.read(&wanted, follow, options.patience).await?;
    let mut stop = pin!(stop);
    import.run(&mut source, stop.as_mut(), &mut progress).await?;
    notes.append(&mut source.take_notes());
    Ok(ImportReport {
        partitions: import.targets.into_values().map(|target| target.report).collect(),
        notes,
    })
}

/// The partitions that are to be imported.
fn chosen(mut found: Vec<SourcePartition>, options: &ImportOptions) -> Result<Vec<SourcePartition>, ImportError> {
    let topic = &options.topic;
    for wanted in &options.partitions {
        if !found.iter().any(|part| part.partition == i64::from(*wanted)) {
            return Err(ImportError::Usage(format!(
                "topic {topic} has no partition {wanted} there"
            )));
        }
    }
    if !options.partitions.is_empty() {
        found.retain(|part| {
            options
                .partitions
                .iter()
                .any(|wanted| i64::from(*wanted) == part.partition)
        });
    }
    match (found.len(), &options.stream) {
        (0, _) => Err(ImportError::Usage(format!("topic {topic} has no partitions there"))),
        (count, Some(_)) if count > 1 => Err(ImportError::Usage(format!(
            "topic {topic} has {count} partitions, and --stream names one stream: choose one with --partition"
        ))),
        _ => Ok(found),
    }
}

/// An import under way.
struct Import<'a> {
    client: &'a Client,
    options: &'a ImportOptions,
    protocol: Protocol,
    /// What the source is called.
    name: Arc<str>,
    targets: BTreeMap<i64, Target>,
    flight: Flight,
    /// Places that are to be imported, as far as that is known, and records that are.
    all: u64,
    done: u64,
}

impl Import<'_> {
    /// Opens the stream for a partition, and says from which place on it is to be read; `None`: from the first there is.
    async fn begin(&mut self, part: &SourcePartition) -> Result<Option<u64>, ImportError> {
        let stream = match &self.options.stream {
            Some(stream) => stream.clone(),
            None => self.protocol.stream_of(&self.options.topic, part.partition),
        };
        let source = (self.protocol, &self.name);
        let target = Target::open(self.client, self.options, source, part, &stream).await?;
        let first = target.next().or(part.first);
        if let (Some(first), Some(last)) = (first, part.last) {
            self.all += last.saturating_add(1).saturating_sub(first);
        }
        self.targets.insert(part.partition, target);
        Ok(first)
    }

    async fn run(
        &mut self,
        source: &mut Source,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), ImportError> {
        loop {
            let next = {
                let mut next = pin!(source.next());
                tokio::select! {
                    biased;
                    () = stop.as_mut() => None,
                    next = next.as_mut() => Some(next),
                    // Nothing is there at once: what is gathered does not wait for what comes.
                    () = std::future::ready(()) => {
                        self.send_all();
                        loop {
                            tokio::select! {
                                biased;
                                () = stop.as_mut() => break None,
                                next = next.as_mut() => break Some(next),
                                landed = self.flight.land_one() => landed?,
                            }
                        }
                    }
                }
            };
            let Some(next) = next else { break };
            match next? {
                Some(Item::Appeared(part)) => self.begin_later(&part, source).await?,
                Some(item) => self.take(item).await?,
                None => break,
            }
            progress(self.progress(source));
        }
        self.end(source).await
    }

    /// Begins with a partition that was not there at the beginning.
    async fn begin_later(&mut self, part: &SourcePartition, source: &mut Source) -> Result<(), ImportError> {
        let first = self.begin(part).await?;
        if let Some(target) = self.targets.get_mut(&part.partition) {
            target.tell_whole().await?;
        }
        source.begin_partition(part.partition, first).await?;
        let Some(lineage) = &part.lineage else { return Ok(()) };
        // Events of what follows come when these are read to their ends.
        let is_before = |id: &i64| {
            lineage
                .follows
                .iter()
                .any(|number| *id & 0xffff_ffff == i64::from(*number))
        };
        let before: Vec<_> = self.targets.keys().copied().filter(is_before).collect();
        self.seal_ended(source, before).await
    }

    /// Stores what was taken.
    async fn end(&mut self, source: &Source) -> Result<(), ImportError> {
        self.seal_ended(source, self.targets.keys().copied().collect()).await
    }

    /// Stores what was taken, and marks those of these partitions that have ended. What follows them is there before.
    async fn seal_ended(&mut self, source: &Source, mut partitions: Vec<i64>) -> Result<(), ImportError> {
        self.send_all();
        self.flight.land().await?;
        while let Some(partition) = partitions.pop() {
            let next = self.targets.get(&partition).and_then(Target::next);
            if !source.has_ended(partition, next).await? {
                continue;
            }
            for follower in source.followers(partition).await? {
                if !self.targets.contains_key(&follower.partition) {
                    self.begin(&follower).await?;
                    partitions.push(follower.partition);
                }
            }
            if let Some(target) = self.targets.get_mut(&partition) {
                target.tell_whole().await?;
                target.seal().await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, item: Item) -> Result<(), ImportError> {
        match item {
            Item::Records(records) => {
                let Some(target) = self.targets.get_mut(&records.partition()) else {
                    return Ok(());
                };
                let before = target.report.imported;
                let taken = target.take(&records, &mut self.flight).await;
                self.done += target.report.imported - before;
                taken
            }
            Item::Missing { partition, from, to } => match self.targets.get_mut(&partition) {
                Some(target) => target.miss(from, to, &mut self.flight).await,
                None => Ok(()),
            },
            // Its stream is opened first.
            Item::Appeared(_) => Ok(()),
        }
    }

    fn send_all(&mut self) {
        for target in self.targets.values_mut() {
            target.send(&mut self.flight);
        }
    }

    fn progress(&self, source: &Source) -> Progress {
        match source.share() {
            // Of segments what is to be imported is known here, and what is imported there.
            Some(share) => Progress {
                done: share.done,
                all: share.all.max(self.all).max(share.done),
            },
            None => Progress {
                done: self.done,
                all: self.all.max(self.done),
            },
        }
    }
}
