"""gradcheck: is the gradient right, and if not, where and in what way is it wrong?"""
