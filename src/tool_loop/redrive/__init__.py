"""Drives a saved run again through today's code, and says where it would act differently."""
