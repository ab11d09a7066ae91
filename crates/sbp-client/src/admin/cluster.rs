//! Calls about servers: their numbers, and who the placement driver is.

use std::time::Duration;

use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, IdAllocationRequest,
    IdAllocationResponse, PlacementDriverCluster, RangeServer, ReportMetricsRequest, ReportMetricsResponse,
    ServerState,
};
use sbp_types::ServerId;

use crate::address::ServerAddress;
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// A server number that nobody had before, for a server that runs at `host`. A call that has to be repeated may use
    /// up more than one, which does no harm.
    ///
    /// # Errors
    ///
    /// When the call failed.
    pub async fn allocate_id(&self, host: &str, timeout: Option<Duration>) -> Result<ServerId, ClientError> {
        let request = |timeout_ms| IdAllocationRequest {
            timeout_ms,
            host: host.to_owned(),
        };
        let take = |frame: IdAllocationResponse| (frame.id, frame.status);
        match self.ask_one(timeout, request, take).await? {
            id @ 1.. => Ok(ServerId(id)),
            id => Err(ClientError::protocol(format!("{id} is no server's number"))),
        }
    }

    /// Who the placement driver's members are, and which of them leads. Who does not lead knows nothing of range servers: then
    /// the leader is asked.
    ///
    /// # Errors
    ///
    /// When the call failed.
    pub async fn describe_cluster(&self, timeout: Option<Duration>) -> Result<PlacementDriverCluster, ClientError> {
        let cluster = self.describe_as_known(timeout).await?;
        let leader = cluster.leader().filter(|_| cluster.range_servers.is_none());
        let Some(leader) = leader.and_then(|leader| ServerAddress::of_peer(&leader.advertise_addr)) else {
            return Ok(cluster);
        };
        self.pool().follow(leader);
        match self.describe_as_known(timeout).await {
            Ok(known) => Ok(known),
            Err(_) => {
                self.pool().forget_leader();
                Ok(cluster)
            }
        }
    }

    /// Says what is to become of a range server: [`ServerState::DRAINING`] has its ranges moved to others, and keeps it so until
    /// [`ServerState::IN_USE`] is said. That the order is durable is success; [`describe_cluster`](Self::describe_cluster) says
    /// how far it is.
    ///
    /// # Errors
    ///
    /// That there is no such range server, or that the call failed.
    pub async fn set_server_state(
        &self,
        server: ServerId,
        wanted: ServerState,
        timeout: Option<Duration>,
    ) -> Result<(), ClientError> {
        let request = |_timeout_ms| ReportMetricsRequest {
            range_server: Some(RangeServer {
                server_id: server,
                ..RangeServer::default()
            }),
            wanted,
            ..ReportMetricsRequest::default()
        };
        let take = |frame: ReportMetricsResponse| ((), frame.status);
        self.ask_one(timeout, request, take).await
    }

    /// The cluster as the one that is asked knows it.
    async fn describe_as_known(&self, timeout: Option<Duration>) -> Result<PlacementDriverCluster, ClientError> {
        let request = |timeout_ms| DescribePlacementDriverClusterRequest {
            range_server: None,
            timeout_ms,
        };
        let take = |frame: DescribePlacementDriverClusterResponse| (frame.cluster, frame.status);
        let cluster = self.ask_one(timeout, request, take).await?;
        cluster.ok_or_else(|| ClientError::protocol("the cluster is not described"))
    }
}
