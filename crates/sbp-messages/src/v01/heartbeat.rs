//! HEARTBEAT.

use flatbuffers::WIPOffset;

use super::shared::read_status;
use super::{Builder, Wire, fb, read_string, read_tables, write_string, write_tables};
use crate::{ClientRole, Feature, HeartbeatRequest, HeartbeatResponse, RangeServer};

impl Wire for Feature {
    type Table<'a> = fb::Feature<'a>;
    const NAME: &'static str = "Feature";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            name: read_string(table.name()),
            value: read_string(table.value()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let name = write_string(&self.name, builder);
        let value = write_string(&self.value, builder);
        fb::Feature::create(builder, &fb::FeatureArgs { name, value })
    }
}

impl Wire for HeartbeatRequest {
    type Table<'a> = fb::HeartbeatRequest<'a>;
    const NAME: &'static str = "HeartbeatRequest";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            client_id: read_string(table.client_id()),
            client_role: ClientRole(table.client_role().0),
            range_server: table.range_server().map(RangeServer::read),
            protocol_revision: table.protocol_revision(),
            features: read_tables(table.features()),
            connection_id: table.connection_id(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let client_id = write_string(&self.client_id, builder);
        let range_server = self.range_server.as_ref().map(|server| server.write(builder));
        let features = Some(write_tables(&self.features, builder));
        fb::HeartbeatRequest::create(
            builder,
            &fb::HeartbeatRequestArgs {
                client_id,
                client_role: fb::ClientRole(self.client_role.0),
                range_server,
                protocol_revision: self.protocol_revision,
                features,
                connection_id: self.connection_id,
            },
        )
    }
}

impl Wire for HeartbeatResponse {
    type Table<'a> = fb::HeartbeatResponse<'a>;
    const NAME: &'static str = "HeartbeatResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            client_id: read_string(table.client_id()),
            client_role: ClientRole(table.client_role().0),
            range_server: table.range_server().map(RangeServer::read),
            status: read_status(table.status()),
            protocol_revision: table.protocol_revision(),
            features: read_tables(table.features()),
            connection_id: table.connection_id(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let client_id = write_string(&self.client_id, builder);
        let range_server = self.range_server.as_ref().map(|server| server.write(builder));
        let status = Some(self.status.write(builder));
        let features = Some(write_tables(&self.features, builder));
        fb::HeartbeatResponse::create(
            builder,
            &fb::HeartbeatResponseArgs {
                client_id,
                client_role: fb::ClientRole(self.client_role.0),
                range_server,
                status,
                protocol_revision: self.protocol_revision,
                features,
                connection_id: self.connection_id,
            },
        )
    }
}
