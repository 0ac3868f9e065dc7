//! A `kill -9` at any instant loses nothing that was acknowledged, and repeats nothing.
//!
//! Two kinds of world are killed: whole demos, once each, on every kind of host (`demo`), and a service
//! at work, over and over, with everything else alive around it (`fire`). Each has a short form, which
//! is part of every run, and a long one.
#![allow(clippy::unwrap_used)]

mod acknowledged;
mod clients;
mod demo;
mod fire;
mod program;
mod puppets;
mod remains;
mod tickets;
mod verdict;
mod world;
