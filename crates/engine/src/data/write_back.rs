//! From buffers to extents.

use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Gives all buffered data its extents.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        Ok(())
    }
}
