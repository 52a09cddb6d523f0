//! The reader of requests that come through `/dev/fuse` beside io_uring: FORGET, and INTERRUPT, which is refused.
//!
//! The kernel wakes a reader for each FORGET, and each removal of a file makes one. So after one the reader naps,
//! and finds those that have come meanwhile together. They take no memory that their nodes had not taken in
//! the kernel already. No client waits for a FORGET or an INTERRUPT.

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
    // A reader that is woken in vain must not be kept from hearing of the end.
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
