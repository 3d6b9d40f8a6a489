"""What AutoThread is compared with: one rule or tuner a module, written from its description."""
