//! The placement driver: ALLOCATE_ID (0x0004), REPORT_METRICS (0x4001), DESCRIBE_PD_CLUSTER (0x4002).

use bytes::{Bytes, BytesMut};
use sbp_types::{RangeIndex, StreamId};

use crate::v01::{self, tables};
use crate::{DecodeError, Encoder, RangeId, RangeServer, ServerState, Status};

tables! {
    /// One member of the placement driver's cluster.
    pub struct PlacementDriverNode: PlacementDriverNodeArgs {
        /// Its name.
        pub name: String,
        /// Its address, `host:port`, as the peer wrote it.
        pub advertise_addr: String,
        /// Whether it is the leader, as far as the sender knows.
        pub is_leader: bool,
    }

    /// The members of a placement driver's cluster; also the detail of a status that says "not the leader".
    pub struct PlacementDriverCluster: PlacementDriverClusterArgs {
        /// Its members.
        pub nodes: Vec<PlacementDriverNode>,
        /// The term of the leader that says so; 0: not told.
        pub term: i64 = 0,
        /// The range servers, as the leader sees them; absent: not told.
        pub range_servers: Option<Vec<RangeServerStatus>>,
        /// How many copies of sealed ranges are being made.
        pub copying_range_cnt: i32 = 0,
        /// How many sealed ranges wait for a copy.
        pub waiting_range_cnt: i32 = 0,
        /// The members of the metadata store that placement drivers share; absent: it is in the leader's directory, or not told.
        pub metadata_store: Option<Vec<MetadataStoreMember>>,
    }

    /// A member of the store that placement drivers share.
    pub struct MetadataStoreMember: MetadataStoreMemberArgs {
        /// Its address, `host:port`.
        pub address: String,
        /// Whether it answered the leader when that asked it last.
        pub is_up: bool,
        /// Why it did not answer.
        pub trouble: String,
    }

    /// A range server as the placement driver sees it.
    pub struct RangeServerStatus: RangeServerStatusArgs {
        /// The server.
        pub range_server: Option<RangeServer>,
        /// What an administrator wants of it.
        pub state: ServerState,
        /// Whether it is up.
        pub is_up: bool,
        /// How long ago it was last heard, in milliseconds; -1: never.
        pub silent_ms: i64,
        /// The open ranges whose appends it takes.
        pub open_range_cnt: i32,
        /// Of those, the ranges that have fewer replicas than their stream wants.
        pub missing_replica_cnt: i32,
        /// The open ranges that it follows another server in.
        pub follower_range_cnt: i32,
        /// The sealed ranges of which a copy on it counts, whole or not.
        pub sealed_range_cnt: i32,
        /// Of those, the ranges of which it may lack some.
        pub incomplete_range_cnt: i32,
        /// Free bytes on its disk; -1: it has not reported.
        pub disk_free_space: i64,
        /// Of a server that is to be emptied: how many ranges cannot be moved from it as things are.
        pub stuck_range_cnt: i32,
        /// The first of those.
        pub stuck: Vec<StuckRange>,
        /// Ranges that it keeps and does not serve, because the placement driver does not know their streams.
        pub withheld_range_cnt: i32,
        /// The bytes of their records.
        pub withheld_bytes: i64,
    }

    /// A range that cannot be moved from a server that is to be emptied.
    pub struct StuckRange: StuckRangeArgs {
        /// The stream.
        pub stream_id: StreamId,
        /// Which of its ranges.
        pub range_index: RangeIndex,
        /// Why, and what to do.
        pub reason: String,
    }
}

impl PlacementDriverCluster {
    /// The leader, if the sender knows it.
    #[must_use]
    pub fn leader(&self) -> Option<&PlacementDriverNode> {
        self.nodes.iter().find(|node| node.is_leader)
    }

    /// The encoded cluster, for [`Status::detail`](crate::Status::detail).
    #[must_use]
    pub fn to_detail(&self, encoder: &mut Encoder) -> Bytes {
        let mut out = BytesMut::new();
        v01::encode(self, encoder, &mut out);
        out.freeze()
    }

    /// Decodes the detail of a status.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are not a cluster, because the sender does not know it.
    pub fn from_detail(detail: &[u8]) -> Result<Self, DecodeError> {
        v01::decode(detail)
    }
}

tables! {
    /// Asks for a server id that no server had before.
    pub struct IdAllocationRequest: IdAllocationRequestArgs, request of ALLOCATE_ID {
        /// How long the call may wait before it is started, in milliseconds; 0 or less: the server's default.
        pub timeout_ms: i32,
        /// Where the asking server runs.
        pub host: String,
    }

    /// Answers an [`IdAllocationRequest`].
    pub struct IdAllocationResponse: IdAllocationResponseArgs, response of ALLOCATE_ID {
        /// The id, from 1 on.
        pub id: i32,
        /// The outcome.
        pub status: Status,
    }

    /// Asks for the members of the placement driver's cluster.
    pub struct DescribePlacementDriverClusterRequest: DescribePlacementDriverClusterRequestArgs,
        request of DESCRIBE_PD_CLUSTER
    {
        /// The sender, if it is a range server.
        pub range_server: Option<RangeServer>,
        /// How long the call may wait before it is started, in milliseconds; 0 and less: the server's default.
        pub timeout_ms: i32,
    }

    /// Answers a [`DescribePlacementDriverClusterRequest`].
    pub struct DescribePlacementDriverClusterResponse: DescribePlacementDriverClusterResponseArgs,
        response of DESCRIBE_PD_CLUSTER
    {
        /// The outcome.
        pub status: Status,
        /// The members; absent on errors.
        pub cluster: Option<PlacementDriverCluster>,
    }

    /// A range server's load, for placement. The units are those of the earlier implementation, which never stated them.
    #[allow(missing_docs, reason = "the names are the schema's, and say all that is known")]
    pub struct ReportMetricsRequest: ReportMetricsRequestArgs, request of REPORT_METRICS {
        pub range_server: Option<RangeServer>,
        pub disk_in_rate: i64,
        pub disk_out_rate: i64,
        pub disk_free_space: i64,
        pub disk_unindexed_data_size: i64,
        pub memory_used: i64,
        pub uring_task_rate: i16,
        pub uring_inflight_task_cnt: i16,
        pub uring_pending_task_cnt: i32,
        pub uring_task_avg_latency: i16,
        pub network_append_rate: i16,
        pub network_fetch_rate: i16,
        pub network_failed_append_rate: i16,
        pub network_failed_fetch_rate: i16,
        pub network_append_avg_latency: i16,
        pub network_fetch_avg_latency: i16,
        pub range_missing_replica_cnt: i16,
        pub range_active_cnt: i16,
        /// What an administrator wants of the server; its own reports leave it out.
        pub wanted: ServerState = Default::default(),
        /// Ranges that it keeps and does not serve, because the placement driver does not know their streams.
        pub withheld_range_cnt: i32 = 0,
        /// The bytes of their records.
        pub withheld_bytes: i64 = 0,
        /// Sealed ranges of which it lacks some, though it may have had all of it: its disk has lost that, or it was never sent it.
        /// The first of them, by range and epoch.
        pub incomplete: Vec<RangeId>,
    }

    /// Answers a [`ReportMetricsRequest`].
    pub struct ReportMetricsResponse: ReportMetricsResponseArgs, response of REPORT_METRICS {
        /// The server that reported.
        pub range_server: Option<RangeServer>,
        /// The outcome.
        pub status: Status,
    }
}

impl RangeServerStatus {
    /// How many ranges the server holds that count: open ones whose appends it takes, those that it follows, and sealed ones.
    #[must_use]
    pub fn held_range_cnt(&self) -> i32 {
        let open = self.open_range_cnt.saturating_add(self.follower_range_cnt);
        open.saturating_add(self.sealed_range_cnt)
    }
}
