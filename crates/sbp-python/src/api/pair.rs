//! Classes that exist twice, for blocking code and for asyncio, from one list of methods.

/// The methods of a pair of classes, each written once. Their docstrings are those of the stub; see
/// [`sbp_python_macros::stub_docs`].
///
/// `struct Blocking and Asyncio(…);` declares the classes, with what they share; `of "…"` before the semicolon names the module
/// that they are in for Python, where that is not `sbp_native`. `impl Blocking and Asyncio { … }` holds the
/// methods that both have. What differs between the two, a method takes from `api`: that is [`crate::api::blocking`] in one
/// class and [`crate::api::asyncio`] in the other, and says how a call ends (`api::Returned`, `api::run`), how records are
/// appended, and of which class the objects are that a call returns.
///
/// `appends(…) to (core, key)` makes `append` and `try_append`, to the stream of that key: behind an argument of its own they
/// take the keywords of every append.
///
/// `writer { … }` holds the method that makes a writer: behind its own argument it takes the keywords of every writer, whose
/// defaults stand here and nowhere else, and finds them in a [`crate::writer::options::WriterArguments`].
///
/// `impl Blocking { … }` and `impl Asyncio { … }` hold what one of the two has for itself. PyO3 wants all methods of a class
/// in one block, so that all of them are given to one macro.
macro_rules! blocking_and_asyncio {
    (struct $blocking:ident and $asyncio:ident($shared:ty); $($rest:tt)*) => {
        $crate::api::pair::blocking_and_asyncio! {
            struct $blocking and $asyncio($shared) of "sbp_native";
            $($rest)*
        }
    };
    (
        struct $blocking:ident and $asyncio:ident($shared:ty) of $module:literal;
        impl $_both:ident and $_two:ident { $($method:tt)* }
        $(appends($($appends:tt)*) to ($($to:tt)*))?
        $(writer { $($writer:tt)* })?
        $(
            impl $_blocking:ident { $($blocking_method:tt)* }
            impl $_asyncio:ident { $($asyncio_method:tt)* }
        )?
    ) => {
        $crate::api::pair::blocking_and_asyncio! {
            @class blocking $blocking($shared) of $module
            { $($method)* $($($blocking_method)*)? }
            { $(appends($($appends)*) to ($($to)*))? }
            { $($($writer)*)? }
        }
        $crate::api::pair::blocking_and_asyncio! {
            @class asyncio $asyncio($shared) of $module
            { $($method)* $($($asyncio_method)*)? }
            { $(appends($($appends)*) to ($($to)*))? }
            { $($($writer)*)? }
        }
    };
    (
        @class $api:ident $class:ident($shared:ty) of $module:literal
        { $($method:tt)* }
        { $(appends(&$appender:ident $(, $stream:ident: $key:ty)?) to ($core:expr, $to:expr))? }
        {
            $(
                fn $writer:ident<$lifetime:lifetime>
                ($($receiver:tt)*) ($($positional:ident: $type:ty)?) $options:ident -> $written:ty { $($writer_body:tt)* }
            )?
        }
    ) => {
        #[sbp_python_macros::stub_docs]
        #[pyclass(frozen, module = $module)]
        pub(crate) struct $class(pub(super) $shared);

        const _: () = {
            #[allow(unused_imports, reason = "a class may have no method that differs")]
            use $crate::api::$api as api;

            #[sbp_python_macros::stub_docs]
            #[pymethods]
            impl $class {
                $($method)*
                $(
                    #[pyo3(signature = (
                        $($stream,)? data, *, key = None, headers = None, timestamp = None, expected_offset = None,
                        compression = None, timeout = None
                    ))]
                    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
                    fn append<'py>(
                        &$appender,
                        py: Python<'py>,
                        $($stream: $key,)?
                        data: &Bound<'py, PyAny>,
                        key: Option<&Bound<'py, PyAny>>,
                        headers: Option<&Bound<'py, PyAny>>,
                        timestamp: Option<&Bound<'py, PyAny>>,
                        expected_offset: Option<i64>,
                        compression: Option<&str>,
                        timeout: Option<f64>,
                    ) -> api::Returned<'py> {
                        let given = (data, key, headers);
                        let input = arguments::append_input(given, timestamp, expected_offset, compression)?;
                        api::append(py, $core, $to, &input, timeout, BackpressurePolicy::Wait)
                    }

                    #[pyo3(signature = (
                        $($stream,)? data, *, key = None, headers = None, timestamp = None, expected_offset = None,
                        compression = None, timeout = None
                    ))]
                    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
                    fn try_append<'py>(
                        &$appender,
                        py: Python<'py>,
                        $($stream: $key,)?
                        data: &Bound<'py, PyAny>,
                        key: Option<&Bound<'py, PyAny>>,
                        headers: Option<&Bound<'py, PyAny>>,
                        timestamp: Option<&Bound<'py, PyAny>>,
                        expected_offset: Option<i64>,
                        compression: Option<&str>,
                        timeout: Option<f64>,
                    ) -> api::Returned<'py> {
                        let given = (data, key, headers);
                        let input = arguments::append_input(given, timestamp, expected_offset, compression)?;
                        api::append(py, $core, $to, &input, timeout, BackpressurePolicy::Fail)
                    }
                )?
                $(
                    #[pyo3(signature = (
                        $($positional,)? *, batch_bytes = 262_144, linger = 0.005, compression = None, idempotent = true,
                        writer_id = None, epoch = None, max_in_flight = 64, on_delivery = None, timeout = 120.0
                    ))]
                    #[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
                    fn $writer<$lifetime>(
                        $($receiver)*,
                        $($positional: $type,)?
                        batch_bytes: usize,
                        linger: f64,
                        compression: Option<&str>,
                        idempotent: bool,
                        writer_id: Option<&Bound<$lifetime, PyAny>>,
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
            }
        };
    };
}

pub(crate) use blocking_and_asyncio;
