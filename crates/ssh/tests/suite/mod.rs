mod access;
mod commands;
mod files;
mod hostile;
mod ports;
mod support;
