"""The components: densities, the E-step, additive statistics, initialisation."""
