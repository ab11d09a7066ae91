//! Python's buffer protocol, in both directions, without copies where that is sound.
//!
//! Out: [`Payload`] shows received bytes to Python. In: [`Pinned`] lends the memory of an immutable object to the I/O thread.
#![allow(
    unsafe_code,
    reason = "the buffer protocol is a C interface; each block says why it is sound"
)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice, PyString};
use sbp_locks::Mutex;
use sbp_python_macros::stub_docs;

use crate::interpreter::imports;
use crate::interpreter::once::interned;
use crate::process::fork::{self, Generation};

/// Shorter arguments are copied: that costs no more than lending them, and frees the caller's object at once.
const LEND_FROM: usize = 16 * 1024;

#[stub_docs]
#[pyclass(frozen, sequence, module = "sbp_native", name = "Payload")]
pub(crate) struct Payload(pub(crate) Bytes);

/// A view as small as this is a copy: it costs no more, and does not keep what it was taken from.
const COPY_BELOW: usize = 16 * 1024;

impl Payload {
    /// A view of received bytes, or a copy of few.
    pub(crate) fn new(bytes: Bytes) -> Self {
        if bytes.len() < COPY_BELOW {
            Self(Bytes::copy_from_slice(&bytes))
        } else {
            Self(bytes)
        }
    }
}

#[stub_docs]
#[pymethods]
impl Payload {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let length = self.0.len();
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(length as isize)?;
            if indices.step == 1 {
                let start = indices.start as usize;
                let part = self.0.slice(start..start + indices.slicelength);
                return Ok(Bound::new(py, Self::new(part))?.into_any());
            }
            let picked = (0..indices.slicelength as isize)
                .filter_map(|i| self.0.get((indices.start + i * indices.step) as usize).copied())
                .collect::<Vec<u8>>();
            return Ok(Bound::new(py, Self(picked.into()))?.into_any());
        }
        let index = key.extract::<isize>()?;
        let index = if index < 0 { index + length as isize } else { index };
        match usize::try_from(index).ok().and_then(|index| self.0.get(index)) {
            Some(byte) => Ok(byte.into_pyobject(py)?.into_any()),
            None => Err(PyIndexError::new_err("payload index out of range")),
        }
    }

    /// Equal to what has the same bytes: a payload, `bytes`, or another buffer.
    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let is_equal = match other.cast::<Self>() {
            Ok(other) => Some(self.0 == other.get().0),
            Err(_) if other.is_instance_of::<PyString>() => None,
            Err(_) => with_bytes(other, |bytes| *self.0 == *bytes).ok(),
        };
        match is_equal {
            Some(is_equal) => Ok(is_equal.into_pyobject(py)?.to_owned().into_any()),
            None => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    /// The hash of the same `bytes`.
    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyBytes::new(py, &self.0).hash()
    }

    fn __repr__(&self) -> String {
        const SHOWN: usize = 32;
        let head = self.0.get(..SHOWN).unwrap_or(&self.0).escape_ascii();
        let dots = if self.0.len() > SHOWN { "..." } else { "" };
        format!("<sbp_native.Payload of {} bytes b\"{head}\"{dots}>", self.0.len())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer was given"));
        }
        let bytes = &slf.get().0;
        let length = isize::try_from(bytes.len()).map_err(|_| PyBufferError::new_err("too long"))?;
        // SAFETY: `view` is a Py_buffer to fill, checked above. The bytes are immutable (the 1 below says read-only; a
        // request for a writable view is refused by the call itself), and live as long as `slf`, which the filled view
        // keeps alive.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast::<c_void>().cast_mut(),
                length,
                1,
                flags,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

/// Python objects lent to I/O threads, by number.
///
/// An I/O thread never drops a Python object: the last owner of the memory posts the number, and a thread that is
/// attached anyway drops the object, at the next call or completion. Only locked while attached and never across a
/// release of the interpreter lock, so that a fork never copies it locked.
static PINS: Mutex<Option<Pins>> = Mutex::new(None);

struct Pins {
    made_by: Generation,
    next: u64,
    lent: HashMap<u64, Py<PyAny>>,
    returned: Arc<Mutex<Vec<u64>>>,
}

impl Pins {
    fn new() -> Self {
        Self {
            made_by: fork::current(),
            next: 0,
            lent: HashMap::new(),
            returned: Arc::default(),
        }
    }

    /// Those of this process. A parent's are left alone: its threads may have held the inner lock.
    fn of_this_process(slot: &mut Option<Self>) -> &mut Self {
        if slot.as_ref().is_some_and(|pins| !pins.made_by.is_current()) {
            std::mem::forget(slot.take());
        }
        slot.get_or_insert_with(Self::new)
    }
}

/// The memory of a lent object, or a part of it.
struct Pinned {
    data: *const u8,
    length: usize,
    number: u64,
    returned: Arc<Mutex<Vec<u64>>>,
}

// SAFETY: the memory is immutable ([`lend`] asks its callers for that), and stays where it is until the number is posted,
// which only the drop of the last owner does. Nothing else of the object is touched.
unsafe impl Send for Pinned {}
// SAFETY: as above: shared reads of immutable memory.
unsafe impl Sync for Pinned {}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `data` and `length` lie in the memory of an object that `PINS` keeps alive until this value is dropped.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.returned.lock().push(self.number);
    }
}

/// Drops the lent objects that have come back.
pub(crate) fn release_pins(py: Python<'_>) {
    let mut slot = PINS.lock();
    let Some(pins) = slot.as_mut().filter(|pins| pins.made_by.is_current()) else {
        return;
    };
    let returned = std::mem::take(&mut *pins.returned.lock());
    let released: Vec<_> = returned.iter().filter_map(|number| pins.lent.remove(number)).collect();
    drop(slot);
    for object in released {
        object.drop_ref(py);
    }
}

/// Lends memory to I/O threads, without a copy.
///
/// # Safety
///
/// The memory must not change or move while `owner` lives.
unsafe fn lend(owner: &Bound<'_, PyAny>, memory: NonNull<[u8]>) -> Bytes {
    release_pins(owner.py());
    let mut slot = PINS.lock();
    let pins = Pins::of_this_process(&mut slot);
    pins.next += 1;
    let number = pins.next;
    pins.lent.insert(number, owner.clone().unbind());
    let returned = Arc::clone(&pins.returned);
    Bytes::from_owner(Pinned {
        data: memory.as_ptr().cast::<u8>(),
        length: memory.len(),
        number,
        returned,
    })
}

/// Calls `f` with the bytes of a bytes-like argument, which is not copied first.
pub(crate) fn with_bytes<R>(object: &Bound<'_, PyAny>, f: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(f(bytes.as_bytes()));
    }
    if let Ok(payload) = object.cast::<Payload>() {
        return Ok(f(&payload.get().0));
    }
    let buffer = readable(object)?;
    let slice = match buffer.as_slice_ptr() {
        Some(slice) if buffer.readonly() => slice,
        // Writable memory may change under a reference, so it is copied by the interpreter; the rest is not contiguous.
        _ => return Ok(f(&buffer.to_vec(object.py())?)),
    };
    // SAFETY: the buffer is held until after the call, so the memory stays in place, and it is read-only.
    Ok(f(unsafe { slice.as_ref() }))
}

/// The same for the value and the key of a record, where it has them.
pub(crate) fn with_value_and_key<R>(
    value: Option<&Bound<'_, PyAny>>,
    key: Option<&Bound<'_, PyAny>>,
    f: impl FnOnce(Option<&[u8]>, Option<&[u8]>) -> R,
) -> PyResult<R> {
    match (value, key) {
        (Some(value), None) => with_bytes(value, |value| f(Some(value), None)),
        (Some(value), Some(key)) => with_bytes(key, |key| with_bytes(value, |value| f(Some(value), Some(key))))?,
        (None, Some(key)) => with_bytes(key, |key| f(None, Some(key))),
        (None, None) => Ok(f(None, None)),
    }
}

/// Calls `f` with the items of a list and their length together, if all are `bytes` objects and nothing else.
pub(crate) fn with_values<R>(list: &Bound<'_, PyList>, f: impl FnOnce(&[&[u8]], usize) -> R) -> Option<R> {
    let length = list.len();
    let mut bytes = 0_usize;
    let mut values: Vec<&[u8]> = Vec::with_capacity(length);
    for index in 0..length {
        let index = isize::try_from(index).ok()?;
        // SAFETY: the index is below the list's length, which nobody changes: no Python code runs from here to the end
        // of `f`, which cannot detach from the interpreter, and the interpreter lock is held.
        let value = unsafe {
            let item = ffi::PyList_GetItem(list.as_ptr(), index);
            if item.is_null() || ffi::PyBytes_CheckExact(item) == 0 {
                return None;
            }
            let (mut data, mut length) = (std::ptr::null_mut(), 0);
            if ffi::PyBytes_AsStringAndSize(item, &raw mut data, &raw mut length) != 0 {
                // Only for what is not a `bytes` object.
                ffi::PyErr_Clear();
                return None;
            }
            // SAFETY: the memory of a `bytes` object, which the list keeps alive; it is immutable.
            std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(length).ok()?)
        };
        bytes = bytes.saturating_add(value.len());
        values.push(value);
    }
    Some(f(&values, bytes))
}

/// The bytes of a bytes-like argument in owned form: large immutable ones are lent, everything else is copied, because
/// the holder of a writable buffer could change it while it is being sent.
pub(crate) fn owned_bytes(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(payload) = object.cast::<Payload>() {
        return Ok(payload.get().0.clone());
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        let slice = bytes.as_bytes();
        if slice.len() < LEND_FROM {
            return Ok(Bytes::copy_from_slice(slice));
        }
        // SAFETY: `bytes` objects are immutable and do not move.
        return Ok(unsafe { lend(bytes, NonNull::from(slice)) });
    }
    let buffer = readable(object)?;
    match buffer.as_slice_ptr() {
        Some(memory) if buffer.readonly() && memory.len() >= LEND_FROM => {
            if let Some(lent) = lend_part(object, memory)? {
                return Ok(lent);
            }
        }
        _ => {}
    }
    drop(buffer);
    with_bytes(object, Bytes::copy_from_slice)
}

/// Lends a read-only view, if what it is a view of is known to be immutable: `bytes`, a payload, a buffer of Arrow's.
/// A read-only view of something writable proves nothing.
fn lend_part(view: &Bound<'_, PyAny>, memory: NonNull<[u8]>) -> PyResult<Option<Bytes>> {
    let py = view.py();
    let mut owner = view.clone();
    // Views of views: of memory, of numpy. Ten are more than anybody makes.
    for _ in 0..10 {
        if let Ok(bytes) = owner.cast::<PyBytes>() {
            let whole = bytes.as_bytes().as_ptr_range();
            let part = memory.as_ptr().cast::<u8>().cast_const();
            let lies_within = whole.contains(&part) && memory.len() <= whole.end as usize - part as usize;
            // SAFETY: the part lies within a `bytes` object, which is immutable and does not move.
            return Ok(lies_within.then(|| unsafe { lend(&owner, memory) }));
        }
        if let Ok(payload) = owner.cast::<Payload>() {
            let whole = &payload.get().0;
            let from = (memory.as_ptr().cast::<u8>() as usize).wrapping_sub(whole.as_ptr() as usize);
            let to = from.wrapping_add(memory.len());
            return Ok((from <= to && to <= whole.len()).then(|| whole.slice(from..to)));
        }
        if is_arrow_buffer(&owner)? {
            // SAFETY: the buffer says that it is immutable, and its memory stays as long as it lives; that the view lies
            // in it is what the chain of owners says.
            return Ok(Some(unsafe { lend(&owner, memory) }));
        }
        owner = if owner.is_instance_of::<PyMemoryView>() {
            owner.getattr(interned!(py, "obj"))?
        } else if is_numpy_array(&owner)? {
            owner.getattr(interned!(py, "base"))?
        } else {
            return Ok(None);
        };
    }
    Ok(None)
}

fn is_arrow_buffer(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = object.get_type();
    Ok(class.fully_qualified_name()? == "pyarrow.lib.Buffer"
        && !object.getattr(interned!(object.py(), "is_mutable"))?.is_truthy()?)
}

fn is_numpy_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.get_type().fully_qualified_name()? == "numpy.ndarray")
}

fn readable(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "bytes are needed, not str: encode the text first, for example text.encode()",
        ));
    }
    let untyped = pyo3::buffer::PyUntypedBuffer::get(object).map_err(|_| wrong_type(object))?;
    if untyped.format().to_bytes().contains(&b'O') {
        return Err(PyTypeError::new_err(
            "bytes are needed, not an array of objects: its memory holds addresses",
        ));
    }
    match untyped.into_typed::<u8>() {
        Ok(buffer) => Ok(buffer),
        // Arrays of wider items are bytes to us as well: the caller says so by passing them.
        Err(_) => {
            let py = object.py();
            let view = imports::memoryview(py)?.call1((object,))?;
            let is_whole = view.getattr(interned!(py, "c_contiguous"))?.is_truthy()?
                && view.getattr(interned!(py, "nbytes"))?.extract::<usize>()? > 0;
            let cast = is_whole.then(|| view.call_method1(interned!(py, "cast"), ("B",)));
            match cast {
                Some(Ok(bytes)) => PyBuffer::get(&bytes),
                // Items that are structures cannot be cast, and gaps between items are no bytes of it.
                _ => PyBuffer::get(&view.call_method0(interned!(py, "tobytes"))?),
            }
        }
    }
}

fn wrong_type(object: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "bytes, bytearray, memoryview or another buffer is needed, not {}",
        type_name(object)
    ))
}

/// The name of an object's type, for messages.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
