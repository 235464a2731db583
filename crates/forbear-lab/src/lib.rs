

pub mod sim;
