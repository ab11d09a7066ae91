//! `sbp stream`, `sbp range` and `sbp cluster` on the command line.

use std::time::Duration;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use sbp_client::Position;
use sbp_record::StreamSchema;

use super::{ClusterAction, Connection};
use crate::when::{millis, parse_duration, parse_position};

#[derive(Args, Debug)]
pub(crate) struct Stream {
    #[command(subcommand)]
    pub(crate) action: StreamAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StreamAction {
    /// Create streams. One that exists with the same settings is left as it is.
    Create(CreateStreams),
    /// List all streams with their bounds.
    List {
        #[command(flatten)]
        connection: Connection,
        /// One JSON object per line instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Show one stream: settings, columns, bounds, ranges.
    Describe {
        #[command(flatten)]
        connection: Connection,
        /// Name or number.
        stream: String,
        /// One JSON object instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Change a stream's name or settings. What is not given stays as it is.
    Update(UpdateStream),
    /// Delete streams with all their records.
    Delete {
        #[command(flatten)]
        connection: Connection,
        /// Names or numbers.
        #[arg(required = true)]
        streams: Vec<String>,
    },
    /// Move a stream's start forward: what is before it is gone, and its space comes back.
    Trim {
        #[command(flatten)]
        connection: Connection,
        /// Name or number.
        stream: String,
        /// The first offset to keep: an offset, a time, -7d, latest-1000, or latest, which keeps nothing of what is there.
        #[arg(long, value_name = "WHERE", value_parser = parse_position, allow_hyphen_values = true)]
        before: Position,
    },
    /// Seal a stream's range: nothing is appended to it any more, and the stream goes on in a new one.
    Seal {
        #[command(flatten)]
        connection: Connection,
        /// Name or number.
        stream: String,
        /// The range's index; the open one when not given. Sealing the same range again changes nothing.
        #[arg(long, value_name = "INDEX")]
        range: Option<i32>,
        /// Open no new range: appends are refused until somebody opens one.
        #[arg(long)]
        leave_sealed: bool,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp stream create orders payments --retention 7d
  sbp stream create orders --replicas 3 --acks 2
  sbp stream create flights --column origin:string --column delay:int32 --column price:'decimal(10,2)'")]
pub(crate) struct CreateStreams {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Names: a letter or underscore, then letters, digits and . _ / -
    #[arg(required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
    /// How long records are kept, counted from their append; for ever when not given.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub(crate) retention: Option<Duration>,
    /// How many bytes are kept; all when not given.
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..), value_name = "BYTES")]
    pub(crate) retention_bytes: Option<i64>,
    /// How many range servers hold each range of the stream; 1 when not given. Where fewer are up, but as many as are to
    /// acknowledge, ranges are opened on those.
    #[arg(long, value_parser = clap::value_parser!(i8).range(1..), value_name = "NUMBER")]
    pub(crate) replicas: Option<i8>,
    /// How many of them must have stored an append before it is acknowledged; a majority when not given.
    #[arg(long, value_parser = clap::value_parser!(i8).range(1..), value_name = "NUMBER")]
    pub(crate) acks: Option<i8>,
    /// A column, may be given several times: records are then rows of these columns. Types are string, binary, bool,
    /// int8 to int64, float32, float64, date, timestamp, decimal(P,S), list<TYPE>, or as Arrow writes them.
    #[arg(long = "column", value_name = "NAME:TYPE", value_parser = parse_column)]
    pub(crate) columns: Vec<Field>,
    /// A property, may be given several times.
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = parse_property)]
    pub(crate) properties: Vec<(String, String)>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp stream update orders --retention 7d --retention-bytes 10000000000
  sbp stream update orders --retention forever --name archive/orders")]
pub(crate) struct UpdateStream {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Name or number.
    pub(crate) stream: String,
    /// A new name.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// How long records are kept, counted from their append: 7d, 12h, or forever.
    #[arg(long, value_parser = parse_retention, value_name = "TIME")]
    pub(crate) retention: Option<i64>,
    /// How many bytes are kept, or all.
    #[arg(long, value_parser = parse_retention_bytes, value_name = "BYTES")]
    pub(crate) retention_bytes: Option<i64>,
    /// How many range servers hold the stream's next range, which is opened at once; a majority acknowledges unless --acks says
    /// otherwise. Ranges that are sealed stay where they are.
    #[arg(long, value_parser = clap::value_parser!(i8).range(1..), value_name = "NUMBER")]
    pub(crate) replicas: Option<i8>,
    /// How many of them must have stored an append before it is acknowledged.
    #[arg(long, value_parser = clap::value_parser!(i8).range(1..), value_name = "NUMBER")]
    pub(crate) acks: Option<i8>,
    /// A property, may be given several times; those given replace all that are there.
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = parse_property)]
    pub(crate) properties: Vec<(String, String)>,
    /// Take all properties away.
    #[arg(long, conflicts_with = "properties")]
    pub(crate) no_properties: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Range {
    #[command(subcommand)]
    pub(crate) action: RangeAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RangeAction {
    /// List ranges: of streams, of a server, or of streams on a server.
    List {
        #[command(flatten)]
        connection: Connection,
        /// Names or numbers; all streams when neither streams nor a server are given.
        streams: Vec<String>,
        /// Only ranges on the range server with this number.
        #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i32).range(1..))]
        server: Option<i32>,
        /// One JSON object per line instead of a table.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    pub(crate) action: Option<ClusterAction>,
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn parse_property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// A column that may have nulls.
fn parse_column(text: &str) -> Result<Field, String> {
    let (name, kind) = text
        .split_once(':')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("write NAME:TYPE")?;
    let field = Field::new(name, parse_type(kind)?, true);
    StreamSchema::from_arrow(&Schema::new(vec![field.clone()])).map_err(|error| error.to_string())?;
    Ok(field)
}

/// A type by the name that users of pandas, Spark and SQL know, or by Arrow's own.
fn parse_type(text: &str) -> Result<DataType, String> {
    let decimal = text.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
    if let Some((precision, scale)) = decimal.and_then(|digits| digits.split_once(',')) {
        return match (precision.trim().parse(), scale.trim().parse()) {
            (Ok(precision @ 1..=38), Ok(scale)) => Ok(DataType::Decimal128(precision, scale)),
            _ => Err(format!(
                "{text}: write decimal(PRECISION,SCALE), with a precision of at most 38"
            )),
        };
    }
    if let Some(item) = text.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
        return Ok(DataType::new_list(parse_type(item.trim())?, true));
    }
    Ok(match text {
        "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        "bool" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" | "int" => DataType::Int32,
        "int64" | "bigint" => DataType::Int64,
        "float32" | "float" => DataType::Float32,
        "float64" | "double" => DataType::Float64,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        other => {
            return other.parse().map_err(|_unknown| {
                format!("{other:?} is no type; write string, int64, float64, bool, binary, date, timestamp, decimal(10,2) ...")
            });
        }
    })
}

/// Milliseconds, or 0 for ever.
fn parse_retention(text: &str) -> Result<i64, String> {
    if text == "forever" {
        return Ok(0);
    }
    match millis(parse_duration(text)?) {
        0 => Err("at least 1ms; write forever to keep all".to_owned()),
        time => Ok(time),
    }
}

/// Bytes, as a request says them.
fn parse_retention_bytes(text: &str) -> Result<i64, String> {
    match text.parse() {
        _ if text == "all" => Ok(sbp_messages::Stream::UNBOUNDED),
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("write a number of bytes above 0, or all".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::{parse_column, parse_retention, parse_retention_bytes};

    #[test]
    fn columns_have_types_by_their_usual_names() {
        let kind = |text: &str| parse_column(text).map(|field| field.data_type().clone());
        assert_eq!(kind("a:string"), Ok(DataType::Utf8));
        assert_eq!(kind("a:decimal(10, 2)"), Ok(DataType::Decimal128(10, 2)));
        assert_eq!(kind("a:List(Int32)").map(|kind| kind.is_nested()), Ok(true));
        assert_eq!(kind("a:list<int32>"), Ok(DataType::new_list(DataType::Int32, true)));
        assert_eq!(
            kind("a:list<list<decimal(10,2)>>").map(|kind| kind.is_nested()),
            Ok(true)
        );
        for wrong in [
            "a:uint8",
            "a:UInt64",
            "a:list<uint8>",
            "a:list<>",
            "a",
            ":string",
            "a:text",
            "a:decimal(50,2)",
            "a:",
        ] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn retention_has_a_word_for_no_bound() {
        assert_eq!(parse_retention("forever"), Ok(0));
        assert_eq!(parse_retention("2h"), Ok(7_200_000));
        assert!(parse_retention("0s").is_err() && parse_retention("long").is_err());
        assert_eq!(parse_retention_bytes("all"), Ok(-1));
        assert_eq!(parse_retention_bytes("5"), Ok(5));
        assert!(parse_retention_bytes("0").is_err() && parse_retention_bytes("-1").is_err());
    }
}
