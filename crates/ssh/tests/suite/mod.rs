mod access;
mod commands;
mod files;
mod handshake;
mod hostile;
mod ports;
mod support;
