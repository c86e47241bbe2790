// The clock's parameters: few, physical, each set by name. Values and their sources are in
// autoamp/virtual/data/clock.json; the defaults here only keep the plug-in usable without it.
#pragma once

#include <string>

namespace vgpu {

struct ModelParameters {
  // Share of the datasheet's memory bandwidth that streaming kernels reach.
  double bandwidth_efficiency = 0.85;
  // The same relative to a V100's, by architecture.
  double bandwidth_factor = 1;
  // Operands that reach the Tensor Cores per operation, relative to boards that run theirs at
  // full rate: 2 on GeForce, which halves float32 accumulation.
  double tensor_feed = 1;
  // Share of the boost clock that the board's power limit leaves to busy SMs.
  double sustained_clock = 1;
  // Share of the peak that a full tile of a matrix product (convolution) reaches, on plain
  // cores and on Tensor Cores.
  double plain_matmul_efficiency = 0.9;
  double plain_conv_efficiency = 0.8;
  double tensor_matmul_efficiency = 0.8;
  double tensor_conv_efficiency = 0.8;
  // Second-level cache: bytes it can deliver per clock and SM, its size, and how much faster
  // than memory it is for data that still lies in it.
  double l2_bytes_per_clock_per_sm = 32;
  double l2_bytes = 6e6;
  double l2_speedup = 2;
  // Share of Tensor Core speed left to a matrix product whose rows are no multiple of 8.
  double misaligned_efficiency = 0.5;
  // Share of plain speed that direct (depthwise) convolutions reach: every multiply-add loads
  // both of its operands from the first-level cache.
  double direct_share = 0.25;
  // The same for the weight gradient of a depthwise convolution.
  double depthwise_sum_share = 0.01;
  // Elements, read and written, that a transposing kernel moves.
  double transposed_per_clock_per_sm = 3;
  // Inner elements' worth of time that a tile spends before its pipeline is full.
  double pipeline_fill = 32;
  // How much faster Winograd's method makes a plain float32 3x3 convolution.
  double winograd_speedup = 1.5;
  // Fixed time of a kernel on the GPU, and of issuing one on the host, eagerly or from a
  // compiled program. The host runs ahead of the GPU until something waits for a result.
  double kernel_floor_s = 3e-6;
  double host_eager_s = 30e-6;
  double host_program_s = 10e-6;
  double wait_s = 10e-6;
  double bus_bytes_per_s = 12e9;
};

ModelParameters& Parameters();

// Sets a parameter, or a number of the device model, by name; false if there is none.
bool SetParameter(const std::string& name, double value);

// Reads AUTOAMP_VGPU_MODEL_<NAME> for each parameter.
void LoadParameters();

}  // namespace vgpu
