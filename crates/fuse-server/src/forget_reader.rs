//! Reader of the requests that use `/dev/fuse` even with io_uring: FORGET, and INTERRUPT, which is refused.
//!
//! The kernel wakes a reader for each FORGET, and each removal of a file sends one. So the reader sleeps after one, and
//! then reads all that have arrived as a batch. Their nodes took at least as much memory in the kernel before. No
//! client waits for a FORGET or an INTERRUPT.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::abi::opcode;
use crate::answer::Server;
use crate::device::{Device, Frame, Received};
use crate::ending::Ending;
use crate::request::FileSystem;

const NAP: Duration = Duration::from_millis(10);

/// Serves until the connection ends.
pub(crate) fn serve<F: FileSystem>(
    server: &Server<F>,
    device: &Device,
    ending: &Ending,
) -> io::Result<()> {
    let mut frame = Frame::new(server.negotiated.request_bytes)?;
    // The reader must not block after a spurious wakeup, as it would miss the end.
    fcntl_setfl(device, fcntl_getfl(device)? | OFlags::NONBLOCK)?;
    loop {
        let mut sources = [
            PollFd::new(device, PollFlags::IN),
            PollFd::new(ending, PollFlags::IN),
        ];
        match poll(&mut sources, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !sources[1].revents().is_empty() {
            return Ok(());
        }
        match device.receive(&mut frame)? {
            Received::Request(header, len) => {
                device.serve(server, &header, &mut frame, len);
                let forget = matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET);
                if forget && ending.nap(NAP) {
                    return Ok(());
                }
            }
            Received::Nothing => {}
            Received::Unmounted => return Ok(()),
        }
    }
}
