//! Tables in the style of btrfs-progs: columns as wide as their widest cell, separated by one space.

use std::io::{self, Write};

/// A cell with its alignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cell {
    #[default]
    Empty,
    Left(String),
    Right(String),
    /// Dashes over the whole width.
    Rule,
}

impl Cell {
    fn width(&self) -> usize {
        match self {
            Cell::Empty | Cell::Rule => 0,
            Cell::Left(text) | Cell::Right(text) => text.chars().count(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    pub(crate) fn rule(&mut self, columns: usize) {
        self.rows.push(vec![Cell::Rule; columns]);
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(Cell::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            for (column, &width) in widths.iter().enumerate() {
                if column > 0 {
                    out.write_all(b" ")?;
                }
                match row.get(column).unwrap_or(&Cell::Empty) {
                    Cell::Empty => write!(out, "{:width$}", "")?,
                    Cell::Left(text) => write!(out, "{text:<width$}")?,
                    Cell::Right(text) => write!(out, "{text:>width$}")?,
                    Cell::Rule => write!(out, "{:-<width$}", "")?,
                }
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

pub(crate) fn left(text: impl ToString) -> Cell {
    Cell::Left(text.to_string())
}

pub(crate) fn right(text: impl ToString) -> Cell {
    Cell::Right(text.to_string())
}
