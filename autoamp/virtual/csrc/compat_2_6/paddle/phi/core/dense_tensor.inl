// Paddle 2.6's wheel ships dense_tensor.h without this file, which its class body includes.
// Here stand the members that the plug-in uses, as the wheel's library exports them.
 protected:
  // The wheel is built with oneDNN, where a tensor carries a memory descriptor at this place: a
  // handle the size of one shared pointer. Without it every temporary would be 16 bytes short.
  std::shared_ptr<void> onednn_descriptor_;

 public:
  const std::shared_ptr<phi::Allocation>& Holder() const { return holder_; }
  void ResetHolder(const std::shared_ptr<phi::Allocation>& holder);
