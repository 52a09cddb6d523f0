//! The mount: transports and a thin adapter over the engine.
