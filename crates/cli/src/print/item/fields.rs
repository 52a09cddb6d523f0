//! The fields of items, as lines of names and values.

use std::fmt::Display;
use std::io::{self, Write};

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Prints an item that has at least the size of its type.
pub(super) fn whole<T: FromBytes + Immutable + KnownLayout>(
    item: &[u8],
    print: impl FnOnce(&T) -> io::Result<()>,
) -> io::Result<()> {
    match T::ref_from_prefix(item) {
        Ok((item, _)) => print(item),
        Err(_) => Ok(()),
    }
}

/// Prints a line of an item: its fields, each after its name. `"name" = value` is for other names and values.
macro_rules! line {
    (@name $name:ident) => { stringify!($name) };
    (@name $name:literal) => { $name };
    (@value $item:ident $name:ident) => { &$item.$name };
    (@value $item:ident $name:tt = $value:expr) => { &$value };
    ($out:expr, $item:ident: $($name:tt $(= $value:expr)?),+ $(,)?) => {
        $crate::print::item::fields::print_line(
            $out,
            &[$((line!(@name $name), line!(@value $item $name $(= $value)?))),+],
        )
    };
}

pub(super) use line;

pub(super) fn print_line(out: &mut dyn Write, fields: &[(&str, &dyn Display)]) -> io::Result<()> {
    let mut before = "\t\t";
    for (name, value) in fields {
        write!(out, "{before}{name} {value}")?;
        before = " ";
    }
    writeln!(out)
}
