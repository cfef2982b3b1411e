//! A model server that plays scripts in the real wire formats and says that it is scripted.
