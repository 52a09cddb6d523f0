//! The error of the engine that a cause wraps, at any depth.
//!
//! Not here: kinds and numbers, which errors of other parts have as well (`cause`).

use ubtrfs_fs::Error as EngineError;
use ubtrfs_fs::rights::Refused;
use ubtrfs_stream::{CommandError, CommandFault, DiffError, ReceiveFault, SendError, TargetError};

use super::cause::Cause;
use crate::transfer::copy::CopyError;
use crate::transfer::tar::TarError;
use crate::transfer::unpack::UnpackError;

impl Cause {
    /// Returns the error of the engine that led to this one, or None if another part of the library failed.
    pub(crate) fn engine_error(&self) -> Option<&EngineError> {
        match self {
            Cause::Named(error) => error.0.cause.engine_error(),
            Cause::Engine(error)
            | Cause::Refused(Refused::Volume(error))
            | Cause::Send(SendError::Engine(error))
            | Cause::Diff(DiffError::Engine(error))
            | Cause::Tar(TarError::Engine(error)) => Some(error),
            Cause::Command(error) => of_command(error),
            Cause::Receive(error) => match &error.cause {
                ReceiveFault::Command(error) => of_command(error),
                _ => None,
            },
            Cause::Copy(error) => of_copy(error),
            Cause::Unpack(error) => of_unpack(error),
            _ => None,
        }
    }
}

fn of_command(error: &CommandError) -> Option<&EngineError> {
    match &error.fault {
        CommandFault::Target(
            TargetError::Engine(error) | TargetError::Refused(Refused::Volume(error)),
        ) => Some(error),
        _ => None,
    }
}

fn of_copy(error: &CopyError) -> Option<&EngineError> {
    match error {
        CopyError::Engine(error) | CopyError::Make(error) | CopyError::NothingRead(error) => {
            Some(error)
        }
        CopyError::Keep { source, .. } => Some(source),
        CopyError::At { source, .. } => of_copy(source),
        _ => None,
    }
}

fn of_unpack(error: &UnpackError) -> Option<&EngineError> {
    match error {
        UnpackError::At { source, .. } => of_unpack(source),
        UnpackError::Copy(error) => of_copy(error),
        UnpackError::Times { source, .. } => Some(source),
        _ => None,
    }
}
