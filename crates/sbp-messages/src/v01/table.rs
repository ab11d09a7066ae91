//! The macro that declares a message as a table, and makes its struct and the mapping in both directions.

/// Declares tables of the wire schema, each as a struct that can be read and written.
///
/// A field has its name in the schema and a type of [`Field`](super::field::Field), which says what is read where the
/// field is absent. Its default is the schema's and stands there alone.
///
/// ```text
/// tables! {
///     /// What the table is.
///     pub struct Name: NameArgs {
///         /// What the field is.
///         pub field: Type,
///     }
///
///     /// Appends batches.
///     pub struct AppendRequest: AppendRequestArgs, request of APPEND {
///         /// A field that the schema calls `null`. It is 0 where it is absent, and left out where it is 0.
///         pub other: Type = 0,
///     }
/// }
/// ```
///
/// `NameArgs` is what the generated code builds the table from; a macro cannot make that name out of `Name`. A table
/// that is a header of its own names its operation and its role, `request of APPEND` or `response of APPEND`; with
/// `by template` behind it, [`template`](super::template) writes and reads the usual ones. A field of the schema that
/// has no line here does not compile: "missing field".
///
/// The fields are written in the order of their lines, which affects the bytes but not their meaning: the test vectors
/// depend on it.
macro_rules! tables {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident: $args:ident $(, $role:ident of $operation:ident $(by $template:ident)?)? {
            $( $(#[$field_about:meta])* pub $field:ident: $type:ty $(= $absent:expr)?, )*
        }
    )*) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_about])* pub $field: $type, )*
        }

        /// The values of a table in which every field is absent.
        impl Default for $name {
            #[inline]
            fn default() -> Self {
                let absent = $crate::v01::fb::$args::default();
                Self { $( $field: $crate::v01::column!(absent absent.$field $(, $absent)?), )* }
            }
        }

        impl $crate::v01::Wire for $name {
            type Table<'a> = $crate::v01::fb::$name<'a>;
            const NAME: &'static str = stringify!($name);

            fn read(table: Self::Table<'_>) -> Self {
                Self { $( $field: $crate::v01::column!(read table.$field() $(, $absent)?), )* }
            }

            fn write(&self, builder: &mut $crate::v01::Builder) -> $crate::v01::Written<Self> {
                $( let $field = $crate::v01::column!(write $crate::v01::Field::write(&self.$field, builder) $(, $absent)?); )*
                $crate::v01::fb::$name::create(builder, &$crate::v01::fb::$args { $( $field, )* })
            }
        }

        $( $crate::v01::message! { $name, $role of $operation $(by $template)? } )?
    )* };
}

/// One field: its value where it is absent, as it is read, as it is written. With an `absent` value behind it, the schema
/// calls the field `null`, and it is left out where it has that value.
macro_rules! column {
    (absent $default:expr) => {
        $crate::v01::Field::absent($default)
    };
    (absent $default:expr, $absent:expr) => {
        $crate::v01::Field::absent($absent)
    };
    (read $read:expr) => {
        $crate::v01::Field::read($read)
    };
    (read $read:expr, $absent:expr) => {
        $crate::v01::Field::read($read.unwrap_or($absent))
    };
    (write $written:expr) => {
        $written
    };
    (write $written:expr, $absent:expr) => {
        Some($written).filter(|written| *written != $absent)
    };
}

/// Declares the operation and role of a struct, and that this profile encodes it.
macro_rules! message {
    ($name:ident, request of $operation:ident $($by:ident $template:ident)?) => {
        $crate::v01::message! { @ $name $operation Request $($template)? }
    };
    ($name:ident, response of $operation:ident $($by:ident $template:ident)?) => {
        $crate::v01::message! { @ $name $operation Response $($template)? }
    };
    (@ $name:ident $operation:ident $role:ident) => {
        $crate::v01::message! { @ $name $operation $role encode decode }
    };
    (@ $name:ident $operation:ident $role:ident template) => {
        $crate::v01::message! { @ $name $operation $role encode_templated decode_templated }
    };
    (@ $name:ident $operation:ident $role:ident $encode:ident $decode:ident) => {
        impl $crate::Profile<$name> for $crate::V01 {
            fn encode(message: &$name, encoder: &mut $crate::Encoder, out: &mut bytes::BytesMut) {
                $crate::v01::$encode(message, encoder, out);
            }

            fn decode(header: &[u8]) -> Result<$name, $crate::DecodeError> {
                $crate::v01::$decode(header)
            }
        }

        impl $crate::Message for $name {
            const OPCODE: sbp_frame::OpCode = sbp_frame::OpCode::$operation;
            const ROLE: $crate::Role = $crate::Role::$role;

            fn encode(&self, encoder: &mut $crate::Encoder, out: &mut bytes::BytesMut) {
                <$crate::V01 as $crate::Profile<Self>>::encode(self, encoder, out);
            }

            fn decode(header: &[u8]) -> Result<Self, $crate::DecodeError> {
                <$crate::V01 as $crate::Profile<Self>>::decode(header)
            }
        }
    };
    ($name:ident, $role:ident $($rest:tt)*) => {
        compile_error!(concat!(
            "`", stringify!($role $($rest)*), "` of ", stringify!($name), " is neither `request of OPERATION` nor ",
            "`response of OPERATION`, with or without `by template`"
        ));
    };
}

pub(crate) use {column, message, tables};
