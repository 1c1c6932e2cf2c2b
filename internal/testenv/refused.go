package testenv

// Refused is an address that refuses connections. Nobody listens on port 1, and the kernel never hands it
// out, as it may do with the port of a listener that was closed.
const Refused = "127.0.0.1:1"
