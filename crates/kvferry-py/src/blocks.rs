use kvferry::{Block, Blocks, GridRow, MemoryKind, RegionDesc};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::errors::bad_value;

/// Blocks of one side, out of an array.
pub(crate) enum Rows {
    Flat(Vec<Block>),
    Grid(Vec<GridRow>),
}

impl Rows {
    /// An N x 3 array (address, length, device) or an N x 5 one (address, length, device, stride, count).
    pub(crate) fn from_array(array: &PyReadonlyArray2<'_, u64>) -> PyResult<Self> {
        let columns = array.shape()[1];
        let items = array.as_slice().map_err(|_| bad_value("the array of blocks is not C-contiguous"))?;
        match columns {
            3 => {
                let (rows, _) = items.as_chunks();
                let block =
                    |[addr, len, dev]: &[u64; 3]| Ok(Block { addr: *addr, len: *len, device: device(*dev)? });
                Ok(Self::Flat(rows.iter().map(block).collect::<PyResult<_>>()?))
            }
            5 => {
                let (rows, _) = items.as_chunks();
                let row = |[addr, len, dev, stride, count]: &[u64; 5]| {
                    let device = device(*dev)?;
                    Ok(GridRow { addr: *addr, len: *len, device, stride: *stride, count: *count })
                };
                Ok(Self::Grid(rows.iter().map(row).collect::<PyResult<_>>()?))
            }
            _ => Err(bad_value(format!("an array of blocks has 3 or 5 columns, this one has {columns}"))),
        }
    }

    pub(crate) fn blocks(&self) -> Blocks<'_> {
        match self {
            Self::Flat(blocks) => Blocks::Flat(blocks),
            Self::Grid(rows) => Blocks::Grid(rows),
        }
    }
}

/// Regions out of an N x 3 array.
pub(crate) fn regions(kind: u8, array: &PyReadonlyArray2<'_, u64>) -> PyResult<Vec<RegionDesc>> {
    let kind = memory_kind(kind)?;
    match Rows::from_array(array)? {
        Rows::Flat(blocks) => Ok(blocks
            .into_iter()
            .map(|Block { addr, len, device }| RegionDesc { addr, len, kind, device })
            .collect()),
        Rows::Grid(_) => Err(bad_value("an array of regions has 3 columns")),
    }
}

pub(crate) fn memory_kind(kind: u8) -> PyResult<MemoryKind> {
    MemoryKind::try_from(kind).map_err(|_| bad_value(format!("{kind} is no memory kind")))
}

fn device(device: u64) -> PyResult<u32> {
    u32::try_from(device).map_err(|_| bad_value(format!("{device} is no device number: it has 32 bits")))
}

/// Numbers, and the rest.
type Apart<'py> = (Bound<'py, PyArray1<u64>>, Option<Bound<'py, PyList>>);

/// Takes a list of tuples (address, length, device, anything else) apart: the numbers as a flat array of three a tuple, and
/// the fourth items, if the tuples have four.
#[pyfunction]
pub(crate) fn blocks_from_tuples<'py>(tuples: &Bound<'py, PyList>, width: usize) -> PyResult<Apart<'py>> {
    let py = tuples.py();
    let mut numbers = Vec::with_capacity(tuples.len() * 3);
    let mut rest = Vec::with_capacity(if width > 3 { tuples.len() } else { 0 });
    for item in tuples.iter() {
        let tuple: Bound<'py, PyTuple> = item.cast_into().map_err(|_| wrong_tuple(width))?;
        if tuple.len() != width {
            return Err(wrong_tuple(width));
        }
        for i in 0..3 {
            numbers.push(tuple.get_item(i)?.extract::<u64>()?);
        }
        if width > 3 {
            rest.push(tuple.get_item(3)?);
        }
    }
    let rest = if width > 3 { Some(PyList::new(py, rest)?) } else { None };
    Ok((PyArray1::from_vec(py, numbers), rest))
}

fn wrong_tuple(width: usize) -> PyErr {
    PyTypeError::new_err(format!("each item must be a tuple of {width}"))
}

/// Which blocks of a list take part.
pub(crate) enum Chosen {
    All,
    List(Vec<u32>),
}

impl Chosen {
    /// None for all, an array of integers, or any sequence of integers.
    pub(crate) fn from_python(given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(given) = given else { return Ok(Self::All) };
        if let Ok(array) = given.extract::<PyReadonlyArray1<'_, i32>>() {
            return Self::from_iter(array.as_array().iter().map(|i| i64::from(*i)));
        }
        if let Ok(array) = given.extract::<PyReadonlyArray1<'_, u32>>() {
            return Ok(Self::List(array.as_array().iter().copied().collect()));
        }
        if let Ok(array) = given.extract::<PyReadonlyArray1<'_, i64>>() {
            return Self::from_iter(array.as_array().iter().copied());
        }
        if let Ok(array) = given.extract::<PyReadonlyArray1<'_, u64>>() {
            return Self::from_iter(array.as_array().iter().map(|i| i64::try_from(*i).unwrap_or(-1)));
        }
        Self::from_iter(given.extract::<Vec<i64>>()?.into_iter())
    }

    fn from_iter(indices: impl Iterator<Item = i64>) -> PyResult<Self> {
        let index = |i| u32::try_from(i).map_err(|_| bad_value(format!("{i} is no index of a block")));
        indices.map(index).collect::<PyResult<_>>().map(Self::List)
    }

    pub(crate) fn indices(&self) -> kvferry::Indices<'_> {
        match self {
            Self::All => kvferry::Indices::All,
            Self::List(list) => kvferry::Indices::List(list),
        }
    }
}

/// A number of bytes as people write it: `64 KiB`, `1.2 GiB`.
#[pyfunction]
pub(crate) fn human_size(nbytes: u64) -> String {
    kvferry::human_size(nbytes)
}
