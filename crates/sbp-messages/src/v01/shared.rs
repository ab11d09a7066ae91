//! Tables that several messages share.

use flatbuffers::{Vector, WIPOffset};
use sbp_types::{Epoch, Offset, RangeIndex, ServerId, StreamId, StreamIdentity, TimestampMs};

use super::{Builder, Wire, fb, read_bytes, read_string, read_tables, write_bytes, write_string, write_tables};
use crate::{ErrorCode, KeyValue, Range, RangeServer, ReplicaServer, Status, Stream};

impl Wire for KeyValue {
    type Table<'a> = fb::KeyValue<'a>;
    const NAME: &'static str = "KeyValue";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            key: read_string(table.key()),
            value: read_string(table.value()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let key = write_string(&self.key, builder);
        let value = write_string(&self.value, builder);
        fb::KeyValue::create(builder, &fb::KeyValueArgs { key, value })
    }
}

impl Wire for Status {
    type Table<'a> = fb::Status<'a>;
    const NAME: &'static str = "Status";

    fn read(table: Self::Table<'_>) -> Self {
        let code = ErrorCode::from_wire(table.code().0);
        let message = read_string(table.message());
        let detail = read_bytes(table.detail());
        if code.is_local() {
            // A peer must not speak for this side. Its number survives in the text.
            let message = format!("the peer's code {}: {message}", code.0);
            return Self {
                code: ErrorCode::UNKNOWN,
                message,
                detail,
            };
        }
        Self { code, message, detail }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let message = write_string(&self.message, builder);
        let detail = write_bytes(&self.detail, builder);
        fb::Status::create(
            builder,
            &fb::StatusArgs {
                code: fb::ErrorCode(self.code.0),
                message,
                detail,
            },
        )
    }
}

/// Reads a status; absent is success.
pub(super) fn read_status(table: Option<fb::Status<'_>>) -> Status {
    table.map_or_else(Status::success, Status::read)
}

impl Wire for RangeServer {
    type Table<'a> = fb::RangeServer<'a>;
    const NAME: &'static str = "RangeServer";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            server_id: ServerId(table.server_id()),
            advertise_addr: read_string(table.advertise_addr()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let advertise_addr = write_string(&self.advertise_addr, builder);
        fb::RangeServer::create(
            builder,
            &fb::RangeServerArgs {
                server_id: self.server_id.0,
                advertise_addr,
            },
        )
    }
}

impl Wire for ReplicaServer {
    type Table<'a> = fb::ReplicaServer<'a>;
    const NAME: &'static str = "ReplicaServer";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            range_server: table.range_server().map(RangeServer::read),
            is_primary: table.is_primary(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let range_server = self.range_server.as_ref().map(|server| server.write(builder));
        fb::ReplicaServer::create(
            builder,
            &fb::ReplicaServerArgs {
                range_server,
                is_primary: self.is_primary,
            },
        )
    }
}

impl Wire for Range {
    type Table<'a> = fb::Range<'a>;
    const NAME: &'static str = "Range";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            range_index: RangeIndex(table.range_index()),
            start_offset: Offset(table.start_offset()),
            end_offset: Offset(table.end_offset()),
            next_offset: Offset(table.next_offset()),
            servers: read_tables(table.servers()),
            epoch: Epoch(table.epoch()),
            replica_count: table.replica_count(),
            ack_count: table.ack_count(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let servers = write_tables(&self.servers, builder);
        fb::Range::create(
            builder,
            &fb::RangeArgs {
                stream_id: self.stream_id.0,
                range_index: self.range_index.0,
                start_offset: self.start_offset.0,
                end_offset: self.end_offset.0,
                next_offset: self.next_offset.0,
                servers: Some(servers),
                epoch: self.epoch.0,
                replica_count: self.replica_count,
                ack_count: self.ack_count,
            },
        )
    }
}

impl Wire for Stream {
    type Table<'a> = fb::Stream<'a>;
    const NAME: &'static str = "Stream";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            stream_id: StreamId(table.stream_id()),
            replica_nums: table.replica_nums(),
            retention_period_ms: table.retention_period_ms(),
            ack_count: table.ack_count(),
            name: read_string(table.name()),
            properties: table.properties().map(|properties| read_tables(Some(properties))),
            retention_bytes: table.retention_bytes(),
            schema: table.schema().map(|schema| read_bytes(Some(schema))),
            created_at_ms: TimestampMs(table.created_at_ms()),
            identity: table.identity().and_then(read_identity),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let name = write_string(&self.name, builder);
        let properties = self
            .properties
            .as_ref()
            .map(|properties| write_tables(properties, builder));
        let schema = self.schema.as_ref().map(|schema| builder.create_vector(schema));
        let identity = self.identity.map(|identity| builder.create_vector(&identity.0));
        fb::Stream::create(
            builder,
            &fb::StreamArgs {
                stream_id: self.stream_id.0,
                replica_nums: self.replica_nums,
                retention_period_ms: self.retention_period_ms,
                ack_count: self.ack_count,
                name,
                properties,
                retention_bytes: self.retention_bytes,
                schema,
                created_at_ms: self.created_at_ms.0,
                identity,
            },
        )
    }
}

/// Bytes of any other number are no identity, and tell nothing.
fn read_identity(bytes: Vector<'_, u8>) -> Option<StreamIdentity> {
    bytes.bytes().try_into().ok().map(StreamIdentity)
}
