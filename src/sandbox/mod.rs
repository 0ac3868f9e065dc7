//! A town of stand-in vendors on loopback, for the demo and the tests.
