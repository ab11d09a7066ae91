//! Calls about servers: what range servers tell a placement driver, and who the placement driver is.

use std::time::Duration;

use sbp_messages::{
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, IdAllocationRequest,
    IdAllocationResponse, PlacementDriverCluster, ReportMetricsRequest, ReportMetricsResponse,
};
use sbp_types::ServerId;

use crate::call;
use crate::call::answers::single;
use crate::channel::header::{encoded, millis};
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
        let plan = self.harmless::<IdAllocationRequest>(timeout);
        let encode = |left| {
            encoded(&IdAllocationRequest {
                timeout_ms: millis(left),
                host: host.to_owned(),
            })
        };
        let read = |answer: &_| single(answer, |frame: IdAllocationResponse| (frame.id, frame.status));
        let id = call::call(self.pool(), plan, encode, read).await?;
        if id < 1 {
            return Err(ClientError::protocol(format!("{id} is no server's number")));
        }
        Ok(ServerId(id))
    }

    /// Tells a placement driver how a range server does.
    ///
    /// # Errors
    ///
    /// That the server is not known there, or that the call failed.
    pub async fn report_metrics(
        &self,
        metrics: &ReportMetricsRequest,
        timeout: Option<Duration>,
    ) -> Result<(), ClientError> {
        let plan = self.harmless::<ReportMetricsRequest>(timeout);
        let header = encoded(metrics);
        let read = |answer: &_| single(answer, |frame: ReportMetricsResponse| ((), frame.status));
        call::call(self.pool(), plan, |_left| header.clone(), read).await
    }

    /// Who the placement driver's members are, and which of them leads.
    ///
    /// # Errors
    ///
    /// When the call failed.
    pub async fn describe_cluster(&self, timeout: Option<Duration>) -> Result<PlacementDriverCluster, ClientError> {
        let plan = self.harmless::<DescribePlacementDriverClusterRequest>(timeout);
        let encode = |left| {
            encoded(&DescribePlacementDriverClusterRequest {
                range_server: None,
                timeout_ms: millis(left),
            })
        };
        let read = |answer: &_| {
            single(answer, |frame: DescribePlacementDriverClusterResponse| {
                (frame.cluster, frame.status)
            })
        };
        let cluster = call::call(self.pool(), plan, encode, read).await?;
        cluster.ok_or_else(|| ClientError::protocol("the cluster is not described"))
    }
}
