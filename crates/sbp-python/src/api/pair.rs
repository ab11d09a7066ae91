//! Classes that exist twice, for blocking code and for asyncio, from one list of methods.

/// The methods of a pair of classes, each written once.
///
/// `impl Blocking and Asyncio { … }` holds what both have. What differs between the two, a method takes from `api`: that is
/// [`crate::api::blocking`] in one class and [`crate::api::asyncio`] in the other, and says how a call ends
/// (`api::Returned`, `api::run`), how records are appended, and of which class the objects are that a call returns.
///
/// Attributes stand above the comment. A comment is shown by both classes; what stands behind it in `blocking { … }` or
/// `asyncio { … }`, by that one. `python -m tests.python.help_texts --write` writes all of these from the stub.
///
/// `writer { … }` holds the method that makes a writer: behind its own argument it takes the keywords of every writer, whose
/// defaults stand here and nowhere else, and finds them in a [`crate::writer::options::WriterArguments`].
///
/// `impl Blocking { … }` and `impl Asyncio { … }` hold what one of the two has for itself. PyO3 wants all methods of a class
/// in one block, so that all of them are given to one macro.
macro_rules! blocking_and_asyncio {
    (
        impl $blocking:ident and $asyncio:ident {
            $(
                $(#[$attribute:meta])*
                $(blocking { $(#[$blocking_attribute:meta])* })?
                $(asyncio { $(#[$asyncio_attribute:meta])* })?
                fn $name:ident $(<$lifetime:lifetime>)? ($($argument:tt)*) $(-> $returned:ty)? { $($body:tt)* }
            )*
        }
        $(writer {
            $(#[$writer_attribute:meta])*
            $(blocking { $(#[$blocking_writer_attribute:meta])* })?
            $(asyncio { $(#[$asyncio_writer_attribute:meta])* })?
            fn $writer:ident<$writer_lifetime:lifetime>
            ($($receiver:tt)*) ($($positional:ident: $type:ty)?) $options:ident -> $written:ty { $($writer_body:tt)* }
        })?
        $(
            impl $_blocking:ident { $($blocking_item:tt)* }
            impl $_asyncio:ident { $($asyncio_item:tt)* }
        )?
    ) => {
        $crate::api::pair::blocking_and_asyncio! {
            @class blocking $blocking
            {
                $(
                    [$(#[$attribute])* $($(#[$blocking_attribute])*)?]
                    fn $name $(<$lifetime>)? ($($argument)*) $(-> $returned)? { $($body)* }
                )*
            }
            {
                $(
                    [$(#[$writer_attribute])* $($(#[$blocking_writer_attribute])*)?]
                    fn $writer<$writer_lifetime>
                    ($($receiver)*) ($($positional: $type)?) $options -> $written { $($writer_body)* }
                )?
            }
            { $($($blocking_item)*)? }
        }
        $crate::api::pair::blocking_and_asyncio! {
            @class asyncio $asyncio
            {
                $(
                    [$(#[$attribute])* $($(#[$asyncio_attribute])*)?]
                    fn $name $(<$lifetime>)? ($($argument)*) $(-> $returned)? { $($body)* }
                )*
            }
            {
                $(
                    [$(#[$writer_attribute])* $($(#[$asyncio_writer_attribute])*)?]
                    fn $writer<$writer_lifetime>
                    ($($receiver)*) ($($positional: $type)?) $options -> $written { $($writer_body)* }
                )?
            }
            { $($($asyncio_item)*)? }
        }
    };
    (
        @class $api:ident $class:ident
        {
            $(
                [$($attributes:tt)*]
                fn $name:ident $(<$lifetime:lifetime>)? ($($argument:tt)*) $(-> $returned:ty)? { $($body:tt)* }
            )*
        }
        {
            $(
                [$($writer_attributes:tt)*]
                fn $writer:ident<$writer_lifetime:lifetime>
                ($($receiver:tt)*) ($($positional:ident: $type:ty)?) $options:ident -> $written:ty { $($writer_body:tt)* }
            )?
        }
        { $($item:tt)* }
    ) => {
        const _: () = {
            #[allow(unused_imports, reason = "a class may have no method that differs")]
            use $crate::api::$api as api;

            #[pymethods]
            impl $class {
                $(
                    $($attributes)*
                    fn $name $(<$lifetime>)? ($($argument)*) $(-> $returned)? { $($body)* }
                )*
                $(
                    $($writer_attributes)*
                    #[pyo3(signature = (
                        $($positional,)? *, batch_bytes = 262_144, linger = 0.005, compression = None, idempotent = true,
                        writer_id = None, epoch = None, max_in_flight = 64, on_delivery = None, timeout = 120.0
                    ))]
                    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
                    fn $writer<$writer_lifetime>(
                        $($receiver)*,
                        $($positional: $type,)?
                        batch_bytes: usize,
                        linger: f64,
                        compression: Option<&str>,
                        idempotent: bool,
                        writer_id: Option<&Bound<$writer_lifetime, PyAny>>,
                        epoch: Option<i64>,
                        max_in_flight: usize,
                        on_delivery: Option<Py<PyAny>>,
                        timeout: f64,
                    ) -> $written {
                        let $options = $crate::writer::options::WriterArguments {
                            batch_bytes,
                            linger,
                            compression,
                            idempotent,
                            writer_id,
                            epoch,
                            max_in_flight,
                            on_delivery,
                            timeout,
                        };
                        $($writer_body)*
                    }
                )?
                $($item)*
            }
        };
    };
}

pub(crate) use blocking_and_asyncio;
