//! The native agent loop: events in, effects out as data, with a thin driver.
