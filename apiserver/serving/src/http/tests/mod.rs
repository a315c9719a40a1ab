//! The handler as a whole, called with no socket, over a registry in memory.

mod apply;
mod parts;
mod reads;
mod routes;
mod support;
mod watch;
mod writes;
