//! What a running server shows of itself.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use sbp_log::DamagedInterval;
use sbp_messages::{ErrorCode, Token};
use sbp_types::{RangeKey, ServerId, StreamId};

use crate::access::Asker;
use crate::connections::Connections;
use crate::cursors::cursors;
use crate::disk_space::{DiskSpace, KnownSpace};
use crate::disk_watch::DiskWatch;
use crate::failure::ServerFailure;
use crate::monitor::Figures;
use crate::node::Node;
use crate::placement::{PlacementDriver, PlacementState, RangeRecord, StreamRecord};
use crate::range::{HostedStream, Phase, RangeServer};
use crate::roles::resident_bytes;
use crate::status::{
    Cluster, Counts, DamagedRecords, Gauges, Latencies, Member, Permission, Problem, Query, RangeRow, Refused, Replica,
    Snapshot, Sort, StreamDetail, StreamRow, Streams,
};

/// The most intervals of damage and ranges of a stream that are listed.
const LISTED_DAMAGE: usize = 100;
const LISTED_RANGES: usize = 1_000;

/// A running server, to be looked at.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) node: Arc<Node>,
    /// The range server with the log.
    pub(crate) owner: Arc<RangeServer>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) role: &'static str,
    pub(crate) durability: &'static str,
    pub(crate) data_dir: PathBuf,
    pub(crate) disk: Arc<DiskWatch>,
    pub(crate) space: Arc<DiskSpace>,
}

impl Figures for Observed {
    fn snapshot(&self, query: &Query) -> Snapshot {
        let damage = self.damage();
        let detail = query.stream.map(StreamId).and_then(|id| self.detail(id));
        Snapshot {
            id: self.node.identity.server_id.map(|id| id.0),
            role: self.role,
            address: self.node.identity.advertise.clone(),
            data_dir: self.data_dir.display().to_string(),
            durability: self.durability,
            counts: self.counts(),
            gauges: self.gauges(),
            latencies: self.latencies(),
            damage,
            cluster: self.cluster(),
            streams: self.streams(query),
            stream: detail,
        }
    }

    fn stream_ids(&self) -> Vec<StreamId> {
        match self.node.metadata() {
            Some(driver) => driver.read(|state| state.streams().map(|stream| stream.id).collect()),
            None => {
                let ranges = self.owner.hub.ranges.lock();
                let mut ids: Vec<_> = ranges.table.streams().map(|(id, _)| id).collect();
                drop(ranges);
                ids.sort_unstable();
                ids
            }
        }
    }

    fn stream_rows(&self, ids: &[StreamId]) -> Vec<StreamRow> {
        let row = |id: &StreamId| match self.node.metadata() {
            Some(driver) => {
                let stream = driver.read(|state| state.stream(*id).cloned())?;
                Some(self.row(*id, stream.name.as_deref()))
            }
            None => {
                let is_here = self.owner.hub.ranges.lock().table.stream(*id).is_some();
                is_here.then(|| self.row(*id, None))
            }
        };
        ids.iter().filter_map(row).collect()
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        problems.extend(self.full_disk());
        if let Some(first) = self.owner.log.all_damage(1).first() {
            let ranges = self.owner.log.damaged_ranges();
            let text = format!(
                "the disk has damaged records in {ranges} ranges, the first in range {} at offset {}: reads of them \
                 fail, all others go on; run sbp verify, then restore them from a backup",
                first.key, first.from
            );
            problems.push(Problem { kind: "damage", text });
        }
        if let Some(role) = &self.node.range_role
            && !role.drivers.is_connected()
        {
            let why = role
                .drivers
                .last_failure()
                .unwrap_or_else(|| "not connected yet".to_owned());
            let text = format!(
                "no connection to the placement driver: {why}; known streams go on, new ones and seals wait for it"
            );
            problems.push(Problem {
                kind: "peer-lost",
                text,
            });
        }
        for member in self.cluster().servers.iter().filter(|member| !member.up) {
            let text = format!(
                "range server {} at {} is down: what only it holds can be neither read nor appended to until it is back",
                member.id, member.address
            );
            problems.push(Problem {
                kind: "peer-lost",
                text,
            });
        }
        problems
    }

    fn permission(&self, token: &str) -> Permission {
        self.permission_of(token).0
    }

    fn permission_for(&self, token: &str, from: SocketAddr, path: &str) -> Permission {
        let (permission, who) = self.permission_of(token);
        let code = match permission {
            Permission::Granted => None,
            Permission::Unknown => Some(ErrorCode::UNAUTHORIZED),
            Permission::Forbidden => Some(ErrorCode::FORBIDDEN),
        };
        if let (Some(code), Some(audit)) = (code, &self.node.audit) {
            audit.note_http(&Asker { who, from }, path, code);
        }
        permission
    }

    fn failure(&self) -> Option<Arc<ServerFailure>> {
        self.node.health.failure()
    }
}

impl Observed {
    /// What who has this token may see, and his name.
    fn permission_of(&self, token: &str) -> (Permission, Option<Arc<str>>) {
        let Some(access) = &self.node.access else {
            return (Permission::Granted, None);
        };
        match access.authenticate(&Token::new(token), None, self.node.moment()) {
            Ok(principal) if principal.may_watch() => (Permission::Granted, Some(Arc::clone(&principal.name))),
            Ok(principal) => (Permission::Forbidden, Some(Arc::clone(&principal.name))),
            Err(_) => (Permission::Unknown, None),
        }
    }

    /// That the disk has no room, or little.
    fn full_disk(&self) -> Option<Problem> {
        let log = &self.owner.log;
        let (kind, how, what) = match (log.disk_is_full(), log.disk_is_nearly_full()) {
            (true, _) => ("disk-full", "full", "appends that do not fit into what is left"),
            (false, true) => ("disk-nearly-full", "nearly full", "appends too large for what is left"),
            (false, false) => return None,
        };
        let text = format!(
            "the disk with {} is {how} ({}): {what} are refused until it has room; delete or trim streams, shorten their \
             retention, or make the disk larger",
            self.data_dir.display(),
            self.space.now(),
        );
        Some(Problem { kind, text })
    }

    fn counts(&self) -> Counts {
        let counters = &self.node.counters;
        let log = self.owner.log.stats();
        let refusals = self.node.refusals.counts().into_iter();
        Counts {
            connections: counters.connections_accepted.value(),
            appends: counters.appends.value(),
            append_records: counters.records_appended.value(),
            append_bytes: log.batch_bytes,
            fetches: counters.fetches.value(),
            fetch_bytes: counters.bytes_fetched.value(),
            groups: log.groups,
            syncs: log.syncs,
            written_bytes: log.written_bytes,
            compacted_bytes: log.compacted_bytes,
            throttled_in: counters.throttled_in.value(),
            throttled_out: counters.throttled_out.value(),
            refusals: refusals
                .map(|(code, count)| Refused {
                    code: code.0,
                    name: code.name().to_string(),
                    count,
                })
                .collect(),
        }
    }

    fn gauges(&self) -> Gauges {
        let activity = self.owner.activity();
        let placement = self.node.metadata();
        let streams = placement.map(|driver| count(driver.read(PlacementState::stream_count)));
        let KnownSpace { space, age } = self.space.now();
        Gauges {
            connections: count(self.connections.count()),
            streams: streams.unwrap_or(activity.streams),
            open_ranges: activity.open_ranges,
            damaged_ranges: activity.damaged_ranges,
            withheld_streams: activity.withheld_streams,
            replicas_missing: placement.map_or(0, |driver| replicas_missing(driver)),
            append_pending_bytes: self.owner.log.pending_bytes(),
            reads_pending: self.node.readers.as_ref().map_or(0, |readers| count(readers.waiting())),
            fetches_waiting: self.node.counters.fetches_waiting.value(),
            metadata_pending: self.node.counters.metadata_pending.value(),
            segments: self.owner.log.stats().segments,
            disk_free_bytes: space.free,
            disk_size_bytes: space.size,
            disk_space_age: age,
            disk_full: self.owner.log.disk_is_full(),
            disk_nearly_full: self.owner.log.disk_is_nearly_full(),
            failed: self.node.health.failure().is_some(),
            resident_bytes: resident_bytes(),
            placement_driver_connected: self.node.range_role.as_ref().map(|role| role.drivers.is_connected()),
        }
    }

    fn latencies(&self) -> Latencies {
        let counters = &self.node.counters;
        Latencies {
            append: counters.append_seconds.snapshot(),
            fetch: counters.fetch_seconds.snapshot(),
            end_to_end: counters.end_to_end_seconds.snapshot(),
            sync: counters.sync_seconds.snapshot(),
            metadata: counters.metadata_seconds.snapshot(),
            loop_lag: counters.loop_lag_seconds.snapshot(),
        }
    }

    fn damage(&self) -> Vec<DamagedRecords> {
        let found = self.owner.log.all_damage(LISTED_DAMAGE);
        found.into_iter().map(damaged_records).collect()
    }

    fn cluster(&self) -> Cluster {
        let me = self.node.identity.server_id;
        let member = |id: ServerId, address: String, driver: &PlacementDriver| {
            let (up, load) = driver.presence(id);
            Member {
                id: id.0,
                address,
                this: me == Some(id),
                up,
                open_ranges: count(driver.read(|state| state.open_ranges_on(id))),
                free_bytes: load.free_bytes,
                appends_per_second: load.appends,
                fetches_per_second: load.fetches,
            }
        };
        let Some(driver) = self.node.metadata() else {
            let this = me.map(|id| Member {
                id: id.0,
                address: self.node.identity.advertise.clone(),
                this: true,
                up: true,
                open_ranges: self.owner.activity().open_ranges,
                free_bytes: Some(self.space.now().space.free),
                ..Member::default()
            });
            let role = self
                .node
                .range_role
                .as_ref()
                .filter(|role| !role.drivers.is_connected());
            return Cluster {
                servers: this.into_iter().collect(),
                placement_driver_failure: role.and_then(|role| role.drivers.last_failure()),
            };
        };
        let known: Vec<_> = driver.read(|state| state.servers().cloned().collect());
        let own = me.map(|id| member(id, self.node.identity.advertise.clone(), driver));
        let others = known.iter().filter(|server| me != Some(server.id));
        let others = others.map(|server| member(server.id, server.address.clone(), driver));
        Cluster {
            servers: own.into_iter().chain(others).collect(),
            placement_driver_failure: None,
        }
    }

    fn streams(&self, query: &Query) -> Streams {
        if query.limit == 0 {
            return Streams::default();
        }
        let number = query.search.parse::<i64>().ok().map(StreamId);
        let wanted = query.search.to_lowercase();
        let fits = |id: StreamId, name: Option<&str>| {
            let named = name.is_some_and(|name| name.to_lowercase().contains(&wanted));
            wanted.is_empty() || number == Some(id) || named
        };
        let mut found: Vec<(Option<Arc<str>>, StreamId)> = match self.node.metadata() {
            Some(driver) => driver.read(|state| {
                let fitting = state.streams().filter(|stream| fits(stream.id, stream.name.as_deref()));
                fitting.map(|stream| (stream.name.clone(), stream.id)).collect()
            }),
            None => {
                let ranges = self.owner.hub.ranges.lock();
                let fitting = ranges.table.streams().filter(|(id, _)| fits(*id, None));
                fitting.map(|(id, _)| (None, id)).collect()
            }
        };
        match query.sort {
            Sort::Name => found.sort_unstable(),
            Sort::Bytes => found.sort_by_cached_key(|(name, id)| (Reverse(self.stored_bytes(*id)), name.clone(), *id)),
        }
        let rows = found.iter().take(query.limit);
        Streams {
            matched: count(found.len()),
            list: rows.map(|(name, id)| self.row(*id, name.as_deref())).collect(),
            // They are read from the disk, which one may be looking at because it does not answer.
            cursors: if query.cursors && self.disk.hung().is_none() {
                cursors(&self.node, &self.owner)
            } else {
                Vec::new()
            },
        }
    }

    fn stored_bytes(&self, id: StreamId) -> u64 {
        let keys: Vec<_> = match self.owner.hub.ranges.lock().table.stream(id) {
            Some(hosted) => hosted.ranges.iter().map(|range| range.key(id)).collect(),
            None => return 0,
        };
        keys.iter().map(|key| self.owner.log.stored_bytes(*key)).sum()
    }

    fn row(&self, id: StreamId, name: Option<&str>) -> StreamRow {
        let mut row = StreamRow {
            id: id.0,
            name: name.map(str::to_owned),
            ..StreamRow::default()
        };
        let mut keys = Vec::new();
        if let Some(hosted) = self.owner.hub.ranges.lock().table.stream(id) {
            row.start = hosted.start.0;
            row.end = Some(hosted.confirmed_end().0);
            row.writers = count(hosted.writer_count());
            keys.extend(hosted.ranges.iter().map(|range| range.key(id)));
            row.ranges = count(keys.len());
        }
        row.bytes = self.stored_bytes(id);
        if let Some(driver) = self.node.metadata() {
            driver.read(|state| {
                let ranges: Vec<_> = state.ranges_of(id).collect();
                row.ranges = count(ranges.len());
                if let Some(first) = ranges.first() {
                    row.start = first.start_offset.0;
                }
                if let Some(last) = ranges.last()
                    && !keys.contains(&last.key)
                {
                    row.end = last.end_offset.map(|end| end.0);
                }
            });
        }
        row
    }

    fn detail(&self, id: StreamId) -> Option<StreamDetail> {
        let (record, stored): (Option<Arc<StreamRecord>>, Vec<Arc<RangeRecord>>) = match self.node.metadata() {
            Some(driver) => driver.read(|state| {
                let ranges = state.ranges_of(id).take(LISTED_RANGES).cloned().collect();
                (state.stream(id).cloned(), ranges)
            }),
            None => (None, Vec::new()),
        };
        let hosted = self.owner.hub.ranges.lock().table.stream(id).cloned();
        if record.is_none() && hosted.is_none() {
            return None;
        }
        let facts = match &record {
            Some(record) => record.facts(),
            None => hosted.as_ref().map(|hosted| hosted.facts.clone()).unwrap_or_default(),
        };
        let range_list = match &record {
            Some(_) => stored
                .iter()
                .map(|range| self.stored_range(range, hosted.as_ref()))
                .collect(),
            None => hosted.iter().flat_map(|hosted| self.held_ranges(id, hosted)).collect(),
        };
        Some(StreamDetail {
            row: self.row(id, record.as_ref().and_then(|record| record.name.as_deref())),
            created_ms: record.as_ref().map(|record| record.created_at.0),
            typed: !facts.fingerprints.is_empty(),
            retention_ms: facts.retention_period_ms,
            retention_bytes: facts.retention_bytes.unwrap_or(0),
            range_list,
        })
    }

    /// A range as the placement driver knows it, with what this server holds of it.
    fn stored_range(&self, range: &RangeRecord, hosted: Option<&HostedStream>) -> RangeRow {
        let here = hosted.and_then(|hosted| hosted.ranges.iter().find(|held| held.index == range.key.range));
        let end = range.end_offset.or(here.map(|held| held.confirmed));
        let state = match (here, range.end_offset) {
            (Some(held), _) => phase(held.phase),
            (None, Some(_)) => "sealed",
            (None, None) => "open",
        };
        RangeRow {
            index: range.key.range.0,
            epoch: range.epoch.0,
            start: range.start_offset.0,
            end: end.map(|end| end.0),
            state,
            bytes: self.owner.log.stored_bytes(range.key),
            replicas: range.servers.iter().map(|id| self.replica(*id)).collect(),
            damage: self.damage_of(range.key),
        }
    }

    /// The ranges of a stream that a range server holds.
    fn held_ranges(&self, id: StreamId, hosted: &HostedStream) -> Vec<RangeRow> {
        let rows = hosted.ranges.iter().take(LISTED_RANGES).map(|held| RangeRow {
            index: held.index.0,
            epoch: held.epoch.0,
            start: held.start.0,
            end: Some(held.confirmed.0),
            state: phase(held.phase),
            bytes: self.owner.log.stored_bytes(held.key(id)),
            replicas: self
                .node
                .identity
                .server_id
                .map(|me| self.replica(me))
                .into_iter()
                .collect(),
            damage: self.damage_of(held.key(id)),
        });
        rows.collect()
    }

    fn replica(&self, id: ServerId) -> Replica {
        if self.node.identity.server_id == Some(id) {
            return Replica {
                server: id.0,
                address: self.node.identity.advertise.clone(),
                up: true,
            };
        }
        let Some(driver) = self.node.metadata() else {
            return Replica::default();
        };
        let address = driver.read(|state| state.server(id).map(|server| server.address.clone()));
        Replica {
            server: id.0,
            address: address.unwrap_or_default(),
            up: driver.presence(id).0,
        }
    }

    fn damage_of(&self, key: RangeKey) -> Vec<(i64, i64)> {
        let damage = self.owner.log.damage(key).into_iter();
        damage.map(|damage| (damage.from.0, damage.to.0)).collect()
    }
}

/// The copies of ranges that are on servers which are down.
fn replicas_missing(driver: &PlacementDriver) -> u64 {
    let down: Vec<ServerId> = {
        let known: Vec<_> = driver.read(|state| state.servers().map(|server| server.id).collect());
        known.into_iter().filter(|id| !driver.presence(*id).0).collect()
    };
    if down.is_empty() {
        return 0;
    }
    driver.read(|state| {
        let copies = state.ranges_after(None).flat_map(|range| &range.servers);
        count(copies.filter(|server| down.contains(server)).count())
    })
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Open => "open",
        Phase::Sealing { .. } => "sealing",
        Phase::Sealed => "sealed",
        Phase::EndDamaged => "damaged",
    }
}

fn damaged_records(damage: DamagedInterval) -> DamagedRecords {
    DamagedRecords {
        stream: damage.key.stream.0,
        range: damage.key.range.0,
        from: damage.from.0,
        to: damage.to.0,
    }
}

fn count(figure: usize) -> u64 {
    u64::try_from(figure).unwrap_or(u64::MAX)
}
