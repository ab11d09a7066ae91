//! Where records come from: a running broker of TANK, the files of one, or the servers of Pravega.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sbp_peers::tank::{Broker, BrokerConfig, End, ReadPart, Reader, Start, TankErrorKind};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::error::ImportError;
use super::files::{Found, PartitionFiles, partitions};
use super::item::{Incoming, Item, Share, SourcePartition};
use super::patience::{ASK_AGAIN, Away, patiently};
use super::segments::{PravegaStream, SegmentSource};

/// How often files are looked at again for what was added.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What is imported from TANK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportFrom {
    /// The broker at this address, `host:port`.
    Broker(String),
    /// The data directory of a broker, in which each topic has a directory, and in that each partition.
    Directory(PathBuf),
}

impl ImportFrom {
    /// What it is called, where nothing else is said: the address, or the path without links.
    pub(super) fn name(&self) -> Result<String, ImportError> {
        match self {
            Self::Broker(address) => Ok(address.clone()),
            Self::Directory(path) => {
                let path = path.canonicalize().map_err(ImportError::file(path))?;
                Ok(path.display().to_string())
            }
        }
    }
}

/// Whether reading goes on when the end is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    No,
    ThesePartitions,
    /// Partitions that come later too, where the source tells of them.
    AlsoNewPartitions,
}

/// A topic, or a stream, that is about to be read.
#[derive(Debug)]
pub(super) enum Topic {
    Broker { broker: Broker, topic: String },
    Directory(PathBuf),
    Segments(PravegaStream),
}

impl Topic {
    pub(super) fn find(from: &ImportFrom, topic: &str) -> Self {
        match from {
            ImportFrom::Broker(address) => Self::Broker {
                broker: Broker::new(address, BrokerConfig::default(), Handle::current()),
                topic: topic.to_owned(),
            },
            ImportFrom::Directory(directory) => Self::Directory(directory.join(topic)),
        }
    }

    /// Its partitions. A broker that does not answer is asked until `patience` is over.
    pub(super) async fn partitions(&self, patience: Duration) -> Result<Vec<SourcePartition>, ImportError> {
        match self {
            Self::Broker { broker, topic } => {
                let bounds = patiently(patience, || broker.partitions(topic)).await?;
                let numbered = (0_u16..).zip(bounds);
                let served = numbered.filter_map(|(partition, bounds)| {
                    let bounds = bounds?;
                    Some(SourcePartition {
                        partition: i64::from(partition),
                        first: Some(bounds.first).filter(|first| *first > 0),
                        last: Some(bounds.high_water),
                        lineage: None,
                    })
                });
                Ok(served.collect())
            }
            Self::Directory(topic) => {
                let topic = topic.clone();
                blocking(move || list(&topic)).await
            }
            Self::Segments(stream) => stream.partitions(patience).await,
        }
    }

    /// Reads parts of it, each from its first message wanted; `None`: from the first there is.
    pub(super) async fn read(
        self,
        wanted: &[(i64, Option<u64>)],
        follow: Follow,
        patience: Duration,
    ) -> Result<Source, ImportError> {
        let is_followed = follow != Follow::No;
        match self {
            Self::Broker { broker, topic } => {
                let mut source = BrokerSource {
                    broker,
                    topic,
                    parts: wanted
                        .iter()
                        .map(|&(partition, next)| ReadPart {
                            partition: number(partition),
                            start: next.map_or(Start::Earliest, Start::At),
                            end: if is_followed { End::Never } else { End::Latest },
                        })
                        .collect(),
                    reader: None,
                    patience: if is_followed { Duration::MAX } else { patience },
                };
                source.begin().await?;
                Ok(Source::Broker(Box::new(source)))
            }
            Self::Directory(topic) => {
                let mut source = DirectorySource {
                    topic,
                    known: HashSet::new(),
                    files: VecDeque::new(),
                    ready: VecDeque::new(),
                    done: 0,
                    all: 0,
                    notes: Vec::new(),
                    follow,
                };
                for (partition, next) in wanted {
                    source.begin(number(*partition), *next).await?;
                }
                Ok(Source::Directory(source))
            }
            Self::Segments(stream) => {
                let source = stream.read(wanted, is_followed, patience).await?;
                Ok(Source::Segments(Box::new(source)))
            }
        }
    }
}

fn list(topic: &Path) -> Result<Vec<SourcePartition>, ImportError> {
    list_others(topic, &HashSet::new())
}

/// The partitions that are not known yet.
fn list_others(topic: &Path, known: &HashSet<u16>) -> Result<Vec<SourcePartition>, ImportError> {
    let others = partitions(topic)?
        .into_iter()
        .filter(|partition| !known.contains(partition));
    let each = others.map(|partition| {
        let files = PartitionFiles::open(topic.join(partition.to_string()), partition, None, false)?;
        Ok(SourcePartition {
            partition: i64::from(partition),
            first: files.first(),
            last: None,
            lineage: None,
        })
    });
    each.collect()
}

/// Work that waits for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImportError> + Send + 'static,
) -> Result<T, ImportError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ImportError::Usage("the program is ending".to_owned())),
    }
}

/// The number of a partition of TANK, which a source has told.
fn number(partition: i64) -> u16 {
    u16::try_from(partition).unwrap_or(u16::MAX)
}

/// A topic that is being read.
#[derive(Debug)]
pub(super) enum Source {
    Broker(Box<BrokerSource>),
    Directory(DirectorySource),
    Segments(Box<SegmentSource>),
}

impl Source {
    /// What comes next; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Item>, ImportError> {
        match self {
            Self::Broker(broker) => broker.next().await,
            Self::Directory(directory) => directory.next().await,
            Self::Segments(segments) => segments.next().await,
        }
    }

    /// Has a partition read that has appeared, from its first message wanted; `None`: from the first there is.
    pub(super) async fn begin_partition(&mut self, partition: i64, next: Option<u64>) -> Result<(), ImportError> {
        match self {
            // A broker is asked for the partitions that it had at the beginning, and what follows a segment is being read.
            Self::Broker(_) | Self::Segments(_) => Ok(()),
            Self::Directory(directory) => directory.begin(number(partition), next).await,
        }
    }

    /// Whether nothing more comes to a partition of which all is imported up to this place.
    pub(super) async fn has_ended(&self, partition: i64, next: Option<u64>) -> Result<bool, ImportError> {
        match self {
            Self::Broker(_) | Self::Directory(_) => Ok(false),
            Self::Segments(segments) => segments.has_ended(partition, next).await,
        }
    }

    /// Partitions that follow one that has ended.
    pub(super) async fn followers(&self, partition: i64) -> Result<Vec<SourcePartition>, ImportError> {
        match self {
            Self::Broker(_) | Self::Directory(_) => Ok(Vec::new()),
            Self::Segments(segments) => segments.followers(partition).await,
        }
    }

    /// How far it is read, in bytes, where it says so.
    pub(super) fn share(&self) -> Option<Share> {
        match self {
            Self::Broker(_) => None,
            Self::Segments(segments) => Some(segments.share),
            Self::Directory(DirectorySource { done, all, .. }) => Some(Share { done: *done, all: *all }),
        }
    }

    /// What is to be told of it at the end.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        match self {
            Self::Broker(_) | Self::Segments(_) => Vec::new(),
            Self::Directory(directory) => std::mem::take(&mut directory.notes),
        }
    }
}

/// A topic of a running broker.
#[derive(Debug)]
pub(super) struct BrokerSource {
    broker: Broker,
    topic: String,
    /// What is left to be read.
    parts: Vec<ReadPart>,
    reader: Option<Reader>,
    patience: Duration,
}

impl BrokerSource {
    async fn begin(&mut self) -> Result<(), ImportError> {
        let ask = || self.broker.read_parts(&self.topic, &self.parts);
        self.reader = Some(patiently(self.patience, ask).await?);
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<Item>, ImportError> {
        let begun = Instant::now();
        loop {
            let Some(reader) = &mut self.reader else {
                self.begin().await?;
                continue;
            };
            match reader.next().await {
                Ok(Some(bundle)) => {
                    let part = self.parts.iter_mut().find(|part| part.partition == bundle.partition);
                    if let Some(part) = part {
                        part.start = Start::At(bundle.span.last.saturating_add(1));
                    }
                    return Ok(Some(Item::Records(Incoming::Bundle(bundle))));
                }
                Ok(None) => return Ok(None),
                Err(error) if error.is_away() && begun.elapsed() + ASK_AGAIN < self.patience => {
                    tracing::warn!(%error, "the broker is asked again");
                    sleep(ASK_AGAIN).await;
                }
                Err(error) if error.kind() == TankErrorKind::OutOfRange => match self.missing().await? {
                    Some(item) => return Ok(Some(item)),
                    None => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Which messages the broker has no more, of those that come next; reading goes on behind them.
    async fn missing(&mut self) -> Result<Option<Item>, ImportError> {
        let bounds = patiently(self.patience, || self.broker.partitions(&self.topic)).await?;
        for part in &mut self.parts {
            let Start::At(next) = part.start else { continue };
            let Some(Some(bounds)) = bounds.get(usize::from(part.partition)) else {
                continue;
            };
            if next < bounds.first {
                part.start = Start::At(bounds.first);
                self.reader = None;
                return Ok(Some(Item::Missing {
                    partition: i64::from(part.partition),
                    from: next,
                    to: bounds.first - 1,
                }));
            }
        }
        Ok(None)
    }
}

/// A topic in the files of a broker.
#[derive(Debug)]
pub(super) struct DirectorySource {
    topic: PathBuf,
    /// Partitions that were told.
    known: HashSet<u16>,
    /// Partitions that are not at their end, read in turn.
    files: VecDeque<PartitionFiles>,
    ready: VecDeque<Item>,
    done: u64,
    all: u64,
    notes: Vec<String>,
    follow: Follow,
}

impl DirectorySource {
    async fn begin(&mut self, partition: u16, next: Option<u64>) -> Result<(), ImportError> {
        let (directory, is_followed) = (self.topic.join(partition.to_string()), self.follow != Follow::No);
        let files = blocking(move || PartitionFiles::open(directory, partition, next, is_followed)).await?;
        self.all += files.all_bytes();
        self.done += files.bytes;
        self.known.insert(partition);
        self.files.push_back(files);
        Ok(())
    }

    /// Looks for partitions that are new. One whose directory has no file of messages yet is none.
    async fn look_for_partitions(&mut self) -> Result<(), ImportError> {
        let topic = self.topic.clone();
        let known = self.known.clone();
        let found = blocking(move || list_others(&topic, &known)).await?;
        for part in found.into_iter().filter(|part| part.first.is_some()) {
            self.known.insert(number(part.partition));
            self.ready.push_back(Item::Appeared(part));
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<Item>, ImportError> {
        // Partitions in a row that had nothing.
        let mut idle = 0;
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let Some(mut files) = self.files.pop_front() else {
                return Ok(None);
            };
            let before = files.bytes;
            let read = move || files.read().map(|found| (files, found));
            let (mut files, found) = blocking(read).await?;
            self.done += files.bytes - before;
            self.notes.append(&mut files.notes);
            match found {
                Found::Bundles(bundles) => {
                    idle = 0;
                    let bundles = bundles.into_iter().map(Incoming::Bundle);
                    self.ready.extend(bundles.map(Item::Records));
                    self.files.push_back(files);
                }
                Found::Missing { from, to } => {
                    let partition = i64::from(files.partition);
                    self.ready.push_back(Item::Missing { partition, from, to });
                    self.files.push_back(files);
                }
                // All that it has is known now.
                Found::End if self.follow == Follow::No => {}
                Found::End => {
                    self.files.push_back(files);
                    idle += 1;
                    if idle >= self.files.len() {
                        sleep(LOOK_AGAIN).await;
                        idle = 0;
                        if self.follow == Follow::AlsoNewPartitions {
                            self.look_for_partitions().await?;
                        }
                    }
                }
            }
        }
    }
}
